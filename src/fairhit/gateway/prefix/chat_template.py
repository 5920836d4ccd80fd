"""Renders chat messages into the model's prompt, as the engines do.

Messages are rendered by the template in the model's folder, in Jinja's sandbox and with the engines'
options. Chats with images or audio, or with fields whose effect only the engine knows, are not rendered:
such a prompt is matched by its messages, and not by the engine's KV events.
"""

import contextlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from fairhit.errors import ConfigError
from fairhit.installing import install_command

# Fields of a request whose effect on the prompt only the engine knows.
_UNKNOWN_EFFECT = ("chat_template", "documents", "continue_final_message", "mm_processor_kwargs")
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")
# Marks training targets in a template; it renders to nothing.
_GENERATION = re.compile(r"{%-?\s*(?:end)?generation\s*-?%}")
# A template that iterates over the parts of a content needs a list; others need a string.
_NEEDS_PARTS = re.compile(r"{%-?\s*for\s+\w+\s+in\s+\w+(?:\.content|\[['\"]content['\"]\])")


class ChatTemplate:
    """Chat template of the model in `folder`. Raises ConfigError if it cannot be compiled."""

    def __init__(self, folder: Path, source: str) -> None:
        try:
            from jinja2.ext import loopcontrols
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise ConfigError(
                f"--tokenizer: chat templates need jinja2: {install_command('tokenizer')}"
            ) from None
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _now_as
        try:
            self._template = environment.from_string(_GENERATION.sub("", source))
        except Exception as error:  # noqa: BLE001 - Jinja's errors share no narrower parent
            raise ConfigError(f"--tokenizer: {folder}: chat template: {error}") from None
        self._needs_parts = _NEEDS_PARTS.search(source) is not None
        self._special = _special_tokens(folder)

    @classmethod
    def of(cls, folder: Path) -> "ChatTemplate | None":
        """Chat template in `folder`; None if there is none."""
        alone = folder / "chat_template.jinja"
        if alone.is_file():
            return cls(folder, alone.read_text(encoding="utf-8"))
        found = _settings(folder).get("chat_template")
        if isinstance(found, list):  # several templates by name
            named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
            found = named.get("default")
        return cls(folder, found) if isinstance(found, str) else None

    def render(self, document: Mapping[str, Any]) -> str | None:
        """Prompt of a chat request; None if only the engine can build it. O(text)."""
        if any(document.get(name) for name in _UNKNOWN_EFFECT):
            return None
        messages = self._messages(document.get("messages"))
        if messages is None:
            return None
        extra = document.get("chat_template_kwargs")
        try:
            return self._template.render(
                **{
                    **self._special,
                    "messages": messages,
                    "tools": document.get("tools") or None,
                    "documents": None,
                    "add_generation_prompt": document.get("add_generation_prompt", True),
                    **(extra if isinstance(extra, dict) else {}),
                }
            )
        except Exception:  # noqa: BLE001 - a template is a program; the engine will report its error
            return None

    def _messages(self, messages: Any) -> list[dict[str, Any]] | None:
        if not isinstance(messages, list):
            return None
        rendered = []
        for message in messages:
            content = message.get("content") if isinstance(message, dict) else 0
            if content is None:
                content = ""
            elif isinstance(content, list):
                content = self._parts(content)
            if not isinstance(content, str | list):
                return None
            if self._needs_parts and isinstance(content, str):
                content = [{"type": "text", "text": content}]
            rendered.append({**message, "content": content, **_tool_calls(message)})
        return rendered

    def _parts(self, content: list[Any]) -> str | list[dict[str, str]] | None:
        texts = []
        for part in content:
            text = part.get("text") if isinstance(part, dict) else None
            if not isinstance(text, str):
                return None
            texts.append(text)
        if self._needs_parts:
            return [{"type": "text", "text": text} for text in texts]
        return "\n".join(texts)


def _tool_calls(message: Mapping[str, Any]) -> dict[str, Any]:
    """Tool calls with parsed arguments: requests have a string of JSON, templates need an object."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return {}
    parsed = []
    for call in calls:
        function = dict(call.get("function") or {})
        if isinstance(function.get("arguments"), str):
            with contextlib.suppress(ValueError):
                function["arguments"] = json.loads(function["arguments"])
        parsed.append({**call, "function": function})
    return {"tool_calls": parsed}


def _special_tokens(folder: Path) -> dict[str, str]:
    settings, found = _settings(folder), {}
    for name in _SPECIAL:
        token = settings.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            found[name] = text
    return found


def _settings(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    # Unlike Jinja's own filter, without escapes for HTML.
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def _refuse(message: str) -> None:
    raise ValueError(message)


def _now_as(form: str) -> str:
    return datetime.now().strftime(form)  # noqa: DTZ005 - engines write their local date
