"""SGLang's radix tree, mirrored change by change."""
