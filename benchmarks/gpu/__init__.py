"""Measurements that need a GPU. Each also runs at toy size on a CPU, which is how it is tested."""
