"""The HTTP gateway: asyncio protocols, bytes forwarded as they came."""
