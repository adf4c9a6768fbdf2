"""What other schedulers would do with the same expression: croniter measured, three others modelled.

The models follow published rules, not anybody's code: each docstring in `dialects` names its source. bucketd never
computes a fire with any of this; it serves `bucketd next --compare` and the conformance table.
"""

from bucketd.timing.peers.comparison import PEERS, Comparison, Difference, compare
from bucketd.timing.peers.reading import Question, Reading, Refused, question_of

__all__ = ["PEERS", "Comparison", "Difference", "Question", "Reading", "Refused", "compare", "question_of"]
