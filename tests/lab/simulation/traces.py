"""Small traces for the simulator: written by hand in one line each, or drawn by hypothesis."""

from hypothesis import strategies as st

from fairhit.core.cache.token_runs import Runs
from fairhit_lab.events import Decode
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.traces.trace import TraceRow

SECOND = 10**6
CAPACITY = 60


def row(name, *, at=0.0, client=None, prompt="A5", output_len=2, **more):
    """`prompt` is written as segments and lengths: "A10 x5" is ten tokens of A, then five of x."""
    runs = Runs([(part[0], 0, int(part[1:])) for part in prompt.split()])
    return TraceRow(
        id=name,
        client=client or name[0],
        arrival_us=round(at * SECOND),
        prompt=runs,
        output_len=output_len,
        max_tokens=more.pop("max_tokens", output_len),
        **more,
    )


def simulate(rows, **settings):
    """Every event of a run, on one replica whose passes take a second unless said otherwise."""
    given = {"step_time": "linear:1,0,0", "kv_tokens": CAPACITY, **settings}
    events = []
    cluster = Cluster(SimConfig(**given), rows, [events.append])
    cluster.run()
    for replica in cluster.replicas:
        replica.host.check()
    return events


def of(kind, events):
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def described(events):
    """Events as short words: "admit 1 @0", with whole seconds."""
    return [_described(event) for event in events]


def _described(event):
    name = type(event).__name__.lower()
    subject = getattr(event, "request", None)
    if isinstance(event, Decode):
        subject = "".join(f"{client}{count}" for client, count in sorted(event.counts.items()))
    assert event.t_us % SECOND == 0
    return " ".join(filter(None, [name, subject, f"@{event.t_us // SECOND}"]))


def one_by_one(events):
    """The same with each pass reported by itself, by worker: as stepping reports it."""
    by_worker = {}
    for event in events:
        of_worker = by_worker.setdefault(event.worker, [])
        if not isinstance(event, Decode):
            of_worker.append(event)
            continue
        for j in range(event.passes):
            of_worker.append(("decode", event.end_us(j), event.step + j, dict(event.counts)))
    return by_worker


def traces(
    *,
    clients="abcd",
    min_size=1,
    max_size=40,
    max_s=40,
    weights=False,
    cancels=True,
    programs=True,
    outputs=True,
):
    """Rows with shared prefixes in a small memory, some of them cancelled, some after others."""
    drawn = st.tuples(
        st.sampled_from(clients),
        st.integers(0, max_s * 4),  # quarters of a second
        st.integers(0, 3),  # the stem
        st.integers(1, 24),  # input length
        st.integers(0, 8),  # how much of it is the request's own
        st.integers(1, 20),  # output length
        st.integers(0, 4),  # max_tokens beyond it
        st.none() | st.integers(0, 60),  # cancelled so many quarters later
        st.lists(st.integers(1, 5), max_size=2, unique=True),  # after the rows so many before
        st.booleans(),  # whether the output is known
    )

    def rows(listed):
        made = []
        for number, each in enumerate(sorted(listed, key=lambda each: each[1])):
            client, at, stem, input_len, own, output_len, beyond, cancel, after, known = each
            shared = max(0, input_len - own)
            runs = [(f"stem {stem}", 0, shared), (f"own {number}", 0, input_len - shared)]
            parents = [number - back for back in after if back <= number] if programs else []
            made.append(
                TraceRow(
                    id=str(number),
                    client=client,
                    arrival_us=at * SECOND // 4,
                    prompt=Runs(runs),
                    output_len=output_len,
                    max_tokens=output_len + beyond,
                    output=Runs([(f"out {stem}", 0, output_len)]) if known and outputs else None,
                    after=tuple(str(parent) for parent in parents),
                    cancel_us=(at + cancel) * SECOND // 4 if cancels and cancel else None,
                )
            )
        return made

    return st.lists(drawn, min_size=min_size, max_size=max_size).map(rows)
