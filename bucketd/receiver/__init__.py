"""For who receives the calls: is it from bucketd, is it the newest attempt, and what is in it? Needs the standard library alone.

    receiver = Receiver("whsec_..")
    delivery = receiver.check(request.headers, request.body)     # raises Refused, with the status to answer
    for run in delivery.runs:
        ..                                                       # unless run.run_id is done already

Around a whole application: `receiver.asgi(app)`, `receiver.wsgi(app)`. Read in this order: signed, deliveries, attempts, receiver.
"""

from bucketd.receiver.attempts import Attempts, RecentAttempts
from bucketd.receiver.deliveries import Delivery, Run
from bucketd.receiver.receiver import Receiver
from bucketd.receiver.refusal import Refused

__all__ = ["Attempts", "Delivery", "Receiver", "RecentAttempts", "Refused", "Run"]
