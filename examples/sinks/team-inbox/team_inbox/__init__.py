"""A product's inbox in one SQLite file: the sink that fills it, and what the product's own pages read."""

from team_inbox.reading import Item, mark_seen, unseen
from team_inbox.sink import TeamInbox, TeamInboxOptions

__all__ = ["Item", "TeamInbox", "TeamInboxOptions", "mark_seen", "unseen"]
