"""Request headers that the gateway reads, and those that it does not pass on to engines."""

from fairhit.gateway.auth.identity import TENANT_HEADERS

AUTHORIZATION, API_KEY, TENANT, DROPPED, LENGTH, ENCODING, EXPECT, HOST, CONNECTION = range(9)
# Not passed on: headers of one connection, headers that the gateway sets, cookies (between a client and a
# proxy in front), and compression, because responses are parsed. Every other header is passed on unchanged.
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
