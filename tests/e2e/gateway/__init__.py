"""The gateway over real sockets, in front of engines that fail by a script."""
