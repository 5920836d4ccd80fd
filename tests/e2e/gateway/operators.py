"""Requests of an operator to the admin API."""

import json

from tests.e2e.gateway.world import Reply, World


async def operate(
    world: World, method: str, path: str, document: object = None, **headers: str
) -> Reply:
    body = b"" if document is None else json.dumps(document).encode()
    lines = [f"{method} {path} HTTP/1.1", "accept: */*", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if "host" not in headers:
        lines.append(f"host: 127.0.0.1:{world.gateway.port}")
    connection = await world.connect()
    connection.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    try:
        return await connection.reply()
    finally:
        connection.writer.close()
