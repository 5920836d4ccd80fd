"""What a flag may be set to: one function a kind, each with one line for what is wrong."""

import argparse
from decimal import Decimal, InvalidOperation


def count(text: str) -> int:
    """A whole number above 0."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return number


def whole(text: str) -> int:
    """A whole number from 0 on."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 on, got {text!r}")
    return number


def integer(text: str) -> int:
    """A whole number, also below 0."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None


def microseconds(text: str) -> int:
    """A time in seconds, at most six decimals, as microseconds."""
    try:
        scaled = Decimal(text) * 10**6
        if not scaled.is_finite() or scaled < 0 or scaled % 1:
            raise InvalidOperation
    except InvalidOperation:
        raise argparse.ArgumentTypeError(
            f"expected seconds from 0 on, with at most six decimals, got {text!r}"
        ) from None
    return int(scaled)
