"""The text of a notification: templates with named fields, shortening between whole characters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.notify_text import MARK, characters, checked, filled, one_line, paragraphs, shortened, units
from tests.sinks.deliveries import delivery

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
WHOLE = [
    "a",
    "e\u0301",
    "\u1100\u1161\u11a8",
    FAMILY,
    "\U0001f44d\U0001f3fd",
    "\U0001f1e9\U0001f1ea",
    "\U0001f1eb\U0001f1f7",
    "\u2764\ufe0f",
    "\U0001f3f4\U000e0067\U000e0062\U000e007f",
    "\r\n",
    "\u0928\u0940",
]


def test_every_field_can_be_named():
    """A template is filled with the delivery's fields; a doubled brace is one; what is absent is empty."""
    template = checked("{pack_id} {ref} {subject} {principal} {publisher} {project} {tenant} {occurred_at} {id} {{x}}")
    one = delivery(1, project=None)
    assert filled(template, one) == (f"git commit.created main ana ben  acme 2026-06-01T13:59:59+02:00 {one.id} {{x}}")


def test_data_is_compact_json_that_people_can_read():
    """Letters and emoji stand as they are; what was filled in is not read as a template again."""
    one = delivery(1, data={"say": "Grüße 🧭", "trap": "{id} {0.__class__}"}, subject="{data}")
    assert filled("{data}", one) == '{"say":"Grüße 🧭","trap":"{id} {0.__class__}"}'
    assert filled("{subject}", one) == "{data}"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{body}", "names {body}; it may name {pack_id}, "),
        ("{}", "names {}; "),
        ("{ref.__class__}", "has a single brace"),
        ("{ref!r}", "has a single brace"),
        ("{ref:>9}", "has a single brace"),
        ("{ref", "has a single brace"),
        ("ref}", "has a single brace"),
        ("{0}", "has a single brace"),
    ],
)
def test_a_template_names_fields_and_does_nothing_else(template, reason):
    """Attributes, conversions, formats, numbers and unknown names are refused."""
    with pytest.raises(ValueError, match=r"brace|names") as caught:
        checked(template)
    assert str(caught.value).startswith(reason)


def test_controls_stay_out():
    """A title is one line, so that no value makes a header of its own; a body keeps line breaks and tabs."""
    text = "a\r\nBcc: all\x00\x1b[31m\tb\n"
    assert one_line(text) == "a Bcc: all[31m b"
    assert paragraphs(text) == "a\nBcc: all[31m\tb"
    assert one_line(FAMILY) == FAMILY


@pytest.mark.case("C54")
@settings(max_examples=50)
@given(st.lists(st.sampled_from(WHOLE), max_size=12))
def test_characters_are_what_a_reader_takes_for_one(parts):
    """Marks, emoji sequences, skin tones, flags, tags, syllables and line ends stay together, nothing is lost."""
    assert list(characters("".join(parts))) == parts


@pytest.mark.case("C54")
@settings(max_examples=50)
@given(st.lists(st.sampled_from([one for one in WHOLE if one != "\r\n"]), max_size=60), st.integers(30, 200))
def test_a_text_is_cut_between_characters_within_the_limit(parts, limit):
    """What fits stays as it is; else a beginning of whole characters and the mark fit, and one more would not."""
    text = "".join(parts)
    short = shortened(text, lambda one: units(one) <= limit)
    if units(text) <= limit:
        assert short == text
        return
    assert units(short) <= limit
    kept = list(characters(short.removesuffix(MARK)))
    assert kept == parts[: len(kept)]
    assert units("".join(parts[: len(kept) + 1]) + MARK) > limit


def test_a_character_longer_than_the_limit_cannot_be_shortened():
    """A base under a thousand marks is one character: no part of it is sent in its place."""
    with pytest.raises(ValueError, match="not even one character"):
        shortened("e" + "\u0301" * 1000, lambda one: units(one) <= 140)
