"""What is wrong with a timing, in words for people and codes for programs."""


class TimingError(ValueError):
    """A timing that cannot be used: a duration, a policy, a stored rule.

    ``code`` is stable and meant for programs, ``token`` is the offending piece of text (or None).
    """

    def __init__(self, code: str, message: str, token: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.token = token

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.code, str(self), self.token))


class CronError(TimingError):
    """A cron expression or its zone that cannot be used; raised when it is parsed, never later.

    ``code`` is one of: empty, too_long, bad_character, tz_prefix, unknown_macro, field_count, bad_token, out_of_range,
    bad_step, bad_range, hash_seed_missing, unknown_time_zone, never_fires. ``field`` is minute, hour, dom, month, dow,
    tz, or None if the text as a whole is wrong.
    """

    def __init__(self, code: str, message: str, field: str | None = None, token: str | None = None) -> None:
        super().__init__(code, message, token)
        self.field = field

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.code, str(self), self.field, self.token))
