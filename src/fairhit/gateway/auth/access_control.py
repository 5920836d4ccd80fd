"""Who may ask, and what an engine is told of the headers: found out once for a head that comes again."""

from collections.abc import Callable

from fairhit.core.request import ClientId
from fairhit.errors import BadRequest, FairhitError
from fairhit.gateway.admin.control import PATHS
from fairhit.gateway.api.endpoints import path_of
from fairhit.gateway.auth.header_options import HeaderOptions, Marked
from fairhit.gateway.auth.identity import Identity
from fairhit.gateway.proxy.incoming_request import AdmittedHead, IncomingRequest, RequestHead


def _unmarked(head: RequestHead) -> Marked:
    tenant, twice = head.tenant()
    return Marked(head.lines, tenant=tenant, tenant_twice=twice)


class AccessControl:
    """By the keys of one moment. A reload makes another, which does not believe what this one noted."""

    def __init__(
        self,
        *,
        identity: Identity,
        check_operator: Callable[[RequestHead], None],
        marks: HeaderOptions | None,
        passes_key: bool,
    ) -> None:
        self._identity = identity
        self._check_operator = check_operator  # raises Unauthorized
        self._marks = marks
        self._passes_key = passes_key  # callers' keys are the engines' business

    def admit(self, request: IncomingRequest) -> bool:
        """Whether its body is wanted: who has no key is told so before its body is in memory.

        Raises FairhitError. O(head), and O(1) for one that was let in before.
        """
        head = request.head
        known = head.admitted
        if known is None or known.by is not self:
            known = self._look_at(head)
            if known.refusal is None:
                head.admitted = known
        request.client, request.lines, request.echo = known.client, known.lines, known.echo
        if known.needs_id:
            assert self._marks is not None, "without header options no id is needed"
            self._marks.name(request)
        if known.refusal is not None:
            raise known.refusal
        return known.wants_body

    def _look_at(self, head: RequestHead) -> AdmittedHead:
        marks = self._marks
        marked = marks.of(head) if marks is not None else _unmarked(head)
        client, refusal, wants_body = None, None, False
        if not marked.asks_whether:
            try:
                client = self._client_of(head, marked)
                wants_body = self._wants_body(head)
            except FairhitError as error:
                refusal = error
        return AdmittedHead(
            by=self,
            client=client,
            lines=marked.lines + (self._keys(head) if self._passes_key else b""),
            echo=marked.echo,
            needs_id=not marked.has_id,
            wants_body=wants_body,
            refusal=refusal,
        )

    def _client_of(self, head: RequestHead, marked: Marked) -> ClientId | None:
        if head.endpoint is None and not path_of(head.target).startswith(b"/v1/models"):
            return None
        if marked.tenant_twice and self._identity.trusts_header:
            raise BadRequest("a tenant header came more than once")
        return self._identity.authenticate(head.shown(), marked.tenant)

    def _wants_body(self, head: RequestHead) -> bool:
        if path_of(head.target) in PATHS:
            self._check_operator(head)
            return head.method in {b"POST", b"DELETE"}
        return head.endpoint is not None

    def _keys(self, head: RequestHead) -> bytes:
        lines = b""
        if head.authorization:
            lines += b"authorization: " + head.authorization + b"\r\n"
        if head.api_key:
            lines += b"x-api-key: " + head.api_key + b"\r\n"
        return lines
