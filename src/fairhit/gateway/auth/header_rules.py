"""The headers of requests that the gateway has a use for, and those it does not pass on."""

from fairhit.gateway.auth.identity import TENANT_HEADERS

AUTHORIZATION, API_KEY, TENANT, DROPPED, LENGTH, ENCODING, EXPECT, HOST, CONNECTION = range(9)
# Not passed on: what belongs to one connection, what the gateway sets, cookies, which are between a caller
# and who is in front, and compression, because the answer is read on its way. Every other header is
# passed on as it came.
HEADERS: dict[bytes, int] = {
    b"authorization": AUTHORIZATION,
    b"x-api-key": API_KEY,
    **dict.fromkeys(TENANT_HEADERS, TENANT),
    **dict.fromkeys(
        (b"keep-alive", b"proxy-connection", b"te", b"trailer", b"http2-settings"), DROPPED
    ),
    **dict.fromkeys((b"upgrade", b"accept-encoding", b"proxy-authorization", b"cookie"), DROPPED),
    b"host": HOST,
    b"connection": CONNECTION,
    b"content-length": LENGTH,
    b"transfer-encoding": ENCODING,
    b"expect": EXPECT,
}
