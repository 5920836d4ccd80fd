"""What the engines have cached, as their own events tell it: vLLM's and SGLang's, over ZMQ."""
