"""The files that `pack new` writes: a pack that lints clean, holds its scenario, and is there to be changed.

`$pack` stands for the id; everything else is text as it is written. docs/write-a-pack.md shows and explains them.
"""

from __future__ import annotations

SURFACE = """\
{
  "id": "$pack",
  "version": "0.1.0",
  "title": "Lists in order",
  "adapter": {"kind": "wrap", "bin": "sort"},
  "sandbox": {"bins": ["sort"], "timeout_s": 10},
  "verbs": {
    "$pack.show": {
      "summary": "Show the lines of a file in order.",
      "cli": [{"flag": "-r", "when": "reverse"}, ["-k", "{column}"], "--", "{file}"],
      "args": {
        "properties": {
          "file": {"type": "string", "format": "path"},
          "column": {"type": "integer", "minimum": 1, "description": "Order from this word of each line on."},
          "reverse": {"type": "boolean", "description": "Last first."}
        },
        "required": ["file"], "additionalProperties": false
      }
    },
    "$pack.save": {
      "summary": "Write the lines of a file in order to another file.",
      "cli": [{"flag": "--confirm", "when": "confirm", "host": true}, "-o", "{into}", "--", "{file}"],
      "args": {
        "properties": {"file": {"type": "string", "format": "path"}, "into": {"type": "string", "format": "path"}},
        "required": ["file", "into"], "additionalProperties": false
      }
    }
  },
  "stimulusTriggers": [
    {
      "ref": "list.changed",
      "summary": "A list has other lines than before.",
      "data": {
        "properties": {"file": {"type": "string"}, "lines": {"type": "integer", "minimum": 0}},
        "required": ["file", "lines"], "additionalProperties": false
      }
    }
  ]
}
"""

POLICY = """\
{
  "surface_id": "$pack",
  "version": 1,
  "verbs": {
    "$pack.show": {"operation": "read", "privacy": {"land": "local"}},
    "$pack.save": {"operation": "write", "privacy": {"land": "local"}, "confirm": true}
  },
  "stimuli": {
    "list.changed": {"operation": "read", "privacy": {"land": "personal"}}
  }
}
"""

HARNESS = """\
# Lists in order

`$pack.show` shows the lines of `file` in order; `reverse`: the last first; `column`: in the order of that word on.
`$pack.save` writes them to `into`. It is refused until the args hold `"confirm": true`: ask first.
Both work in the workspace of the activation and see no file outside it.

`list.changed` says that the list `file` has `lines` lines now.
"""

SCENARIO = """\
# sense-worker check $pack/scenario.yaml
scenario: 1
packs: [.]
principals:
  ana: {kind: human, tenant: acme}
  bob: {kind: human, tenant: acme}
grants:
  - {principal: ana, capability: sense.enable, pack: "$pack"}
  - {principal: ana, capability: verb.exec.read, pack: "$pack"}
  - {principal: ana, capability: verb.exec.write, pack: "$pack"}
activations:
  work: {session: ana, pack: "$pack", workspace: true}
routes:
  ana-inbox: {principal: ana, pack: "$pack", ref: list.changed, sink: inbox}
  bob-inbox: {principal: bob, pack: "$pack", ref: list.changed, sink: inbox}
cases:
  - name: a list is the business of whoever announces it
    sense: {activation: work, ref: list.changed, data: {file: names, lines: 3}}
    expect: {ana-inbox: delivered, bob-inbox: "denied: privacy.land personal"}
  - name: the data is what the manifest says
    sense: {activation: work, ref: list.changed, data: {file: names}}
    expect: {refused: invalid_data}
  - name: a read runs
    exec: {activation: work, pack_id: "$pack", verb_key: $pack.show, args: {file: names}}
    expect: {ok: true, ran: true}
  - name: a write asks
    exec: {activation: work, pack_id: "$pack", verb_key: $pack.save, args: {file: names, into: sorted}}
    expect: {ok: false, error: confirm required, ran: false}
  - name: and runs once it is confirmed
    exec: {activation: work, pack_id: "$pack", verb_key: $pack.save, args: {file: names, into: sorted, confirm: true}}
    expect: {ok: true, ran: true}
"""

FILES = {"surface.json": SURFACE, "policy.json": POLICY, "HARNESS.md": HARNESS, "scenario.yaml": SCENARIO}
"""Path and content; both are templates."""
