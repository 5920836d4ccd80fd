"""A salt for each client: the same for its own requests, and of no use to anybody else."""

import json

from hypothesis import given
from hypothesis import strategies as st

from fairhit.gateway.api.endpoints import ENDPOINTS
from fairhit.gateway.api.injected_fields import FieldInjector, PrefixIsolation
from fairhit.gateway.api.request_body import ParsedBody, parse_body
from fairhit.gateway.settings import GatewaySettings

CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]%b}'


def sent(injector: FieldInjector, client: str, body: bytes) -> tuple[ParsedBody, dict[str, object]]:
    call = parse_body(body, ENDPOINTS[b"/v1/chat/completions"])
    injector.isolate(call, client)
    fields = injector.fields(call, client, ask_usage=False)
    return call, json.loads(b"".join(fields.added_to(body, call.document)))


@given(pairs=st.lists(st.tuples(st.text(min_size=1), st.text()), unique=True, max_size=6))
def test_no_two_clients_or_wishes_have_one_salt(pairs: list[tuple[str, str]]) -> None:
    pairs = [(client.replace("\0", "0") + str(at), own) for at, (client, own) in enumerate(pairs)]
    isolation = PrefixIsolation("secret")

    salts = [isolation.salt(client, own) for client, own in pairs]
    assert len(set(salts)) == len(pairs)
    assert salts == [PrefixIsolation("secret").salt(client, own) for client, own in pairs]
    assert not set(salts) & {PrefixIsolation("other").salt(client, own) for client, own in pairs}


def test_without_a_secret_each_gateway_has_its_own() -> None:
    assert PrefixIsolation(None).salt("a", "") != PrefixIsolation(None).salt("a", "")


def test_engine_and_index_are_split_alike() -> None:
    """The gateway must not take another client's prompt for a match that the engine will not find."""
    injector = FieldInjector(GatewaySettings(isolate_prefixes=True, isolation_secret="s"))
    own = b',"cache_salt":"mine"'
    (first, body), (second, other), (third, split) = (
        sent(injector, "alice", CHAT % b""),
        sent(injector, "bob", CHAT % b""),
        sent(injector, "alice", CHAT % own),
    )

    assert len({first.text(), second.text(), third.text()}) == 3
    assert len({body["cache_salt"], other["cache_salt"], split["cache_salt"]}) == 3
    assert sent(injector, "alice", CHAT % b"")[0].text() == first.text()
    for call, document in ((first, body), (second, other), (third, split)):
        assert document["cache_salt"] == call.salt


def test_no_caller_can_put_in_a_salt_of_its_choice() -> None:
    injector = FieldInjector(GatewaySettings(isolate_prefixes=True, isolation_secret="s"))
    victim = PrefixIsolation("s").salt("alice", "")
    claims = (b"\\u0063ache_salt", b'cache_salt":"x","cache_salt')
    for claim in (b"cache_salt", *claims):
        body = CHAT % (b',"%b":"%b"' % (claim, victim.encode()))
        call, document = sent(injector, "bob", body)

        assert document["cache_salt"] == call.salt != victim


def test_unless_it_is_asked_for_a_callers_salt_stays() -> None:
    injector = FieldInjector(GatewaySettings())
    call, document = sent(injector, "alice", CHAT % b',"cache_salt":"mine"')

    assert (call.salt, document["cache_salt"]) == ("mine", "mine")
    assert "cache_salt" not in sent(injector, "alice", CHAT % b"")[1]
