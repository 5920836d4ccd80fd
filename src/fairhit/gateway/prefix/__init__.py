"""The gateway's view of the engines' prefix caches: tokens, chat templates, KV events."""
