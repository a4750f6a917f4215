"""The files that `sink new` writes: a plugin package that works, passes its tests, and is there to be changed.

`$kind`, `$Class`, `$module` and `$package` stand for the names; everything else is text as it is written.
"""

from __future__ import annotations

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$package"
version = "0.1.0"
description = "The sink kind $kind for sense-worker."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["pydantic>=2.12", "sense-worker>=0.1"]

[project.optional-dependencies]
test = ["pytest>=9"]

# The name of the entry point is the kind.
[project.entry-points."sense_worker.sinks"]
$kind = "$module:$Class"

[tool.setuptools]
packages = ["$module"]
package-data = { "*" = ["py.typed"] }

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]

[tool.ruff]
line-length = 120
"""

INIT = '''\
"""The sink kind `$kind`."""

from $module.sink import $Class

__all__ = ["$Class"]
'''

SINK = '''\
"""A sink that keeps each delivery as a file of its own. Change `deliver_one` to deliver where you want."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from sinks import Delivered, Delivery, OneByOne, Outcome, Rejected, Retry


class ${Class}Options(BaseModel):
    """What `sense-worker sink add NAME $kind --option OPTION=VALUE` takes. Type a secret as `pydantic.SecretStr`."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    folder: str = Field(pattern="^/")
    """Absolute path of a folder that is there."""


class $Class(OneByOne):
    """One file a delivery; a delivery that comes again finds its file."""

    kind = "$kind"
    Options = ${Class}Options
    options: ${Class}Options
    lands = ("personal", "brain")
    deadline_s = 10.0

    def deliver_one(self, delivery: Delivery) -> Outcome:
        """Write the file under another name first: whoever reads the folder never sees half of one."""
        folder = Path(self.options.folder)
        place = folder / f"{delivery.id}.json"
        try:
            data = json.loads(delivery.body)["data"]
        except (ValueError, KeyError, TypeError):
            return Rejected("the body is no event")
        text = json.dumps({"id": delivery.id, "subject": delivery.subject, "data": data})
        try:
            if place.exists():
                return Delivered("was there")
            draft = folder / f".{delivery.id}.{delivery.attempt}"
            draft.write_text(f"{text}\\n", encoding="utf-8")
            draft.replace(place)
        except OSError as error:
            return Retry(f"{folder}: {error.strerror}")
        return Delivered(place.name)
'''

TESTS = '''\
"""The sink kind `$kind`: the contract, and what is its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sinks.conformance import Given, SinkConformance, delivery

from $module import $Class
from $module.sink import ${Class}Options


@contextmanager
def missing(folder: Path) -> Iterator[None]:
    """Take the folder away."""
    aside = folder.rename(folder.with_name("aside"))
    yield
    aside.rename(folder)


class Test$Class(SinkConformance):
    """Everything the contract asks of a sink."""

    def make(self, tmp_path: Path) -> Given:
        """Deliver into a folder of its own."""
        folder = tmp_path / "kept"
        folder.mkdir()
        return Given(
            $Class,
            {"folder": str(folder)},
            seen=lambda: [file.stem for file in folder.glob("*.json")],
            away=lambda: missing(folder),
            rejected=lambda one: one._replace(body=b"no event"),
        )


def test_a_file_holds_subject_and_data(tmp_path: Path) -> None:
    """Whoever reads the folder finds what happened."""
    one = delivery(subject="main", data={"sha": "f00d"})
    $Class("mine", ${Class}Options(folder=str(tmp_path))).deliver([one])
    kept = json.loads((tmp_path / f"{one.id}.json").read_text())
    assert kept == {"id": one.id, "subject": "main", "data": {"sha": "f00d"}}
'''

README = """\
# $package

The sink kind `$kind` for sense-worker.

```sh
pip install -e '.[test]'      # into the environment of the workers
pytest                        # the conformance kit, and what is this sink's own
sense-worker sink add mine $kind --option folder=/absolute/path
```

Workers find it when they start: start `sense-worker up` (or the workers) again after installing it.
"""

FILES = {
    "pyproject.toml": PYPROJECT,
    "README.md": README,
    "$module/__init__.py": INIT,
    "$module/py.typed": "",
    "$module/sink.py": SINK,
    "tests/test_$kind.py": TESTS,
}
"""Path and content; both are templates."""
