"""Statements with `?` marks mean the same on both databases."""

from __future__ import annotations

from sense_worker.storage.rows import Rows


def test_a_mark_is_a_mark_and_quoted_text_stays_text(database):
    """`?` and `%` in quotes, doubled quotes among them, come back unchanged; only the marks are filled."""
    with database.read() as connection:
        rows = Rows(connection, database.kind)

        found = rows.query(
            """SELECT 'a?', '100%s', 'it''s ?', 7 % 4, CAST(? AS INTEGER), 'x' LIKE ? AS "is it?" """, (5, "x%")
        )

        assert [tuple(found[0])[:5], bool(found[0][5])] == [("a?", "100%s", "it's ?", 3, 5), True]
        assert rows.query("SELECT '50%'") == [("50%",)]
        assert rows.execute_many("DELETE FROM sense_tenant WHERE id = ? AND id <> '?%'", [("a",), ("b",)]) == 0
