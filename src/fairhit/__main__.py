"""`fairhit` and `python -m fairhit`: the command line, from its first import on."""

import sys


def main() -> int:
    """Run one command; its exit status. Ctrl-C while it still loads is no traceback, either."""
    try:
        from fairhit import cli

        return cli.main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
