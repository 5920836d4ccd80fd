"""What the gateway knows of the engines' prefix caches: tokens, chat templates, KV events."""
