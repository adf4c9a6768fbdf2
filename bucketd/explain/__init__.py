"""Why a schedule ran at an instant, or why it did not: one answer, decided from what Postgres has about the two.

`question` finds which occurrence is meant, `rows` reads a row's fate, `absence` says why there is no row, `pauses` and `timeline` tell
what held at the time. All of them are pure; what they need is read in client/why.
"""
