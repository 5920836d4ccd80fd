"""A chat becomes the text that transformers, and so the engines, make of it; or none, and that is said."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairhit.gateway.prefix.chat_template import ChatTemplate

pytest.importorskip("jinja2", reason="the extra `tokenizer` is not installed")

# In the manner of what models come with: blocks that trim, macros, tools, dates, loops with controls.
TEMPLATES = {
    "chatml": (
        "{%- for message in messages %}\n    {{- '<|im_start|>' + message['role'] + '\\n' }}\n"
        "    {{- message['content'] + '<|im_end|>' + '\\n' }}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n"
    ),
    "llama": (
        "{{ bos_token }}{% for message in messages %}\n"
        "<|start|>{{ message.role }}<|end|>\n\n{{ message.content | trim }}{{ eos_token }}\n"
        "{% if loop.last and add_generation_prompt %}<|start|>assistant<|end|>{% endif %}\n"
        "{% endfor %}"
    ),
    "tools": (
        "{% macro named(tool) %}{{ tool.function.name }}{% endmacro %}\n"
        "{%- if tools %}{% for tool in tools %}{{ named(tool) }}: {{ tool | tojson }}\n{% endfor %}"
        "{% endif %}{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
        "[{{ m.role }}]{{ m.content }}{% if m.tool_calls %}{% for call in m.tool_calls %}"
        "{{ call.function.name }}({{ call.function.arguments | tojson(indent=2) }}){% endfor %}"
        "{% endif %}{% endfor %}{% if enable_thinking is defined and not enable_thinking %}!{% endif %}"
    ),
    "marked": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "parts": (
        "{% for m in messages %}{{ m.role }}:{% for part in m['content'] %}{{ part['text'] }}"
        "{% endfor %}{% endfor %}"
    ),
}
USER = {"role": "user", "content": "  hällo <b>\n"}
CALLS = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"ä": [1, 2]}'}}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
CHATS: list[dict[str, Any]] = [
    {"messages": [USER]},
    {
        "messages": [{"role": "system", "content": "be <brief>"}, USER],
        "add_generation_prompt": False,
    },
    {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": CALLS}], "tools": TOOLS},
    {"messages": [USER], "chat_template_kwargs": {"enable_thinking": False}},
]


def template(folder: Path, source: str, **settings: Any) -> ChatTemplate:
    written = {"chat_template": source, "bos_token": "<s>", "eos_token": {"content": "</s>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps({**written, **settings}))
    found = ChatTemplate.of(folder)
    assert found is not None
    return found


def as_transformers(source: str, chat: dict[str, Any]) -> str:
    """The prompt by the library that the engines use, with the engines' changes to messages."""
    module = pytest.importorskip("transformers.utils.chat_template_utils")
    messages = json.loads(json.dumps(chat["messages"]))
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    rendered, _ = module.render_jinja_template(
        conversations=[messages],
        tools=chat.get("tools"),
        chat_template=source,
        add_generation_prompt=chat.get("add_generation_prompt", True),
        bos_token="<s>",
        eos_token="</s>",
        **chat.get("chat_template_kwargs", {}),
    )
    return str(rendered[0])


@pytest.mark.parametrize("name", ["chatml", "llama", "tools", "marked"])
def test_a_chat_is_rendered_as_transformers_renders_it(tmp_path: Path, name: str) -> None:
    ours = template(tmp_path, TEMPLATES[name])
    assert [ours.render(chat) for chat in CHATS] == [
        as_transformers(TEMPLATES[name], chat) for chat in CHATS
    ]


def test_parts_of_text_are_joined_or_stay_parts_as_the_template_wants_them(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    chat = {"messages": [{"role": "user", "content": parts}, {"role": "user", "content": "c"}]}

    assert template(tmp_path, TEMPLATES["parts"]).render(chat) == "user:abuser:c"
    joined = template(tmp_path, "{% for m in messages %}{{ m.content }};{% endfor %}").render(chat)
    assert joined == "a\nb;c;"


def test_the_template_may_be_a_file_or_one_of_several(tmp_path: Path) -> None:
    several = [{"name": "rag", "template": "no"}, {"name": "default", "template": "yes"}]
    assert template(tmp_path, "", chat_template=several).render({"messages": [USER]}) == "yes"
    (tmp_path / "chat_template.jinja").write_text("file")
    found = ChatTemplate.of(tmp_path)
    assert found is not None and found.render({"messages": [USER]}) == "file"


@pytest.mark.parametrize(
    "chat",
    [
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        {"messages": [USER], "chat_template": "other"},
        {"messages": [USER], "continue_final_message": True},
        {"messages": "none"},
        {"messages": [USER], "chat_template_kwargs": {"fails": True}},
    ],
)
def test_what_only_the_engine_can_render_is_not_rendered(tmp_path: Path, chat: Any) -> None:
    ours = template(tmp_path, "{% if fails %}{{ raise_exception('no') }}{% endif %}x")
    assert ours.render(chat) is None


def test_a_folder_without_a_template_has_none(tmp_path: Path) -> None:
    assert ChatTemplate.of(tmp_path) is None


def test_a_template_sees_nothing_of_this_process(tmp_path: Path) -> None:
    ours = template(tmp_path, "{{ messages.__class__.__mro__ }}")
    assert ours.render({"messages": [USER]}) in (None, "")
