"""What is known about an engine, and what is with it."""

from dataclasses import dataclass, field

from fairlead.dispatch.tickets import Ticket


@dataclass(slots=True)
class Worker:
    """What is known about an engine; `models` None: any, since it does not say."""

    up: bool = False
    takes: bool = True  # False: it finishes what it has and gets no more
    models: frozenset[str] | None = None
    reports_cached: bool | None = None  # None until its first answer; once True it stays
    tickets: set[Ticket] = field(default_factory=set)

    @property
    def is_open(self) -> bool:
        """Whether it gets requests."""
        return self.up and self.takes

    def serves(self, model: str | None) -> bool:
        """Whether a request for `model` may go here."""
        return model is None or self.models is None or model in self.models
