"""Access control: the client of a request and the headers for its engine, cached by head."""

from collections.abc import Callable
from itertools import count

from fairhit.core.request import ClientId
from fairhit.errors import BadRequest, FairhitError
from fairhit.gateway.admin.control import PATHS
from fairhit.gateway.api.endpoints import path_of
from fairhit.gateway.auth.header_options import HeaderOptions, OptionValues
from fairhit.gateway.auth.identity import Identity
from fairhit.gateway.proxy.incoming_request import AdmittedHead, IncomingRequest, RequestHead


def _default_values(head: RequestHead) -> OptionValues:
    tenant, twice = head.tenant()
    return OptionValues(head.lines, tenant=tenant, tenant_twice=twice)


# An object's number, by which results cached in heads are recognised as its own.
_numbers = count()


class AccessControl:
    """Admits requests by one set of keys. A reload makes a new one, which ignores results cached before."""

    def __init__(
        self,
        *,
        identity: Identity,
        check_operator: Callable[[RequestHead], None],
        options: HeaderOptions | None,
        passes_key: bool,
    ) -> None:
        self._number = next(_numbers)
        self._identity = identity
        self._check_operator = check_operator  # raises Unauthorized
        self._options = options
        self._passes_key = passes_key  # the engines check clients' keys

    def admit(self, request: IncomingRequest) -> bool:
        """Set the request's client and headers; True if its body should be received.

        Called before the body is in memory. Raises FairhitError. O(head), O(1) for a known head.
        """
        head = request.head
        known = head.admitted
        if known is None or known.access_control != self._number:
            known = self._check(head)
            if known.refusal is None:
                head.admitted = known
        request.client, request.lines, request.echo = known.client, known.lines, known.echo
        if known.needs_id:
            assert self._options is not None, "without header options no id is needed"
            self._options.add_id(request)
        if known.refusal is not None:
            raise known.refusal
        return known.wants_body

    def _check(self, head: RequestHead) -> AdmittedHead:
        options = self._options
        values = options.read(head) if options is not None else _default_values(head)
        client, refusal, wants_body = None, None, False
        if not values.is_preflight:
            try:
                client = self._client_of(head, values)
                wants_body = self._wants_body(head)
            except FairhitError as error:
                refusal = error
        return AdmittedHead(
            access_control=self._number,
            client=client,
            lines=values.lines + (self._keys(head) if self._passes_key else b""),
            echo=values.echo,
            needs_id=not values.has_id,
            wants_body=wants_body,
            refusal=refusal,
        )

    def _client_of(self, head: RequestHead, values: OptionValues) -> ClientId | None:
        if head.endpoint is None and not path_of(head.target).startswith(b"/v1/models"):
            return None
        if values.tenant_twice and self._identity.trusts_header:
            raise BadRequest("a tenant header came more than once")
        return self._identity.authenticate(head.shown(), values.tenant)

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
