"""Args of format `path`, and the folder a tool works in: none leads out, by name or by link (C32, §4.3.local)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.adapters.argv import ArgvFault
from runtime_core.adapters.paths import check_paths
from runtime_core.schemas import compile_schema
from tests.runtime_core.adapters.wrapping import Wrapped, stdout

if TYPE_CHECKING:
    from pathlib import Path

PATH = {"type": "string", "format": "path"}
SCHEMA = {"type": "object", "properties": {"p": PATH}}
READ = "import sys; print(open(sys.argv[1]).read())"
REFUSED = "invalid args: /p: leads out of the working folder"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace `app` beside `app-tools`, with links of every kind in it."""
    inside, outside = tmp_path / "ws" / "app", tmp_path / "ws" / "app-tools"
    (inside / "sub").mkdir(parents=True)
    outside.mkdir()
    (outside / "x").write_text("outside")
    (inside / "good").write_text("inside")
    (inside / "sub" / "deep").write_text("inside")
    (inside / "link").symlink_to("../app-tools/x")
    (inside / "absolute").symlink_to(outside / "x")
    (inside / "folder").symlink_to("../app-tools")
    (inside / "hop").symlink_to("link")
    (inside / "loop").symlink_to("loop")
    (inside / "within").symlink_to("sub/deep")
    (tmp_path / "through").symlink_to("ws/app")
    return inside


OUTSIDE = (
    *("../app-tools/x", "..", "../", "/", "/etc/hosts", "sub/../../app-tools/x", "../app-tools", "./../app-tools/x"),
    *(
        "link",
        "absolute",
        "folder",
        "folder/x",
        "hop",
        "folder/new",
        "sub/../link",
        "//etc/hosts",
        "/proc/self/cwd/../x",
    ),
    *("../app-tool", "../appx", "new/../../x"),
)
INSIDE = (
    "good",
    "./good",
    "sub/deep",
    "sub/../good",
    "within",
    "",
    ".",
    "new",
    "new/file",
    "..x",
    "sub/",
    "~",
    "loop",
    "../app",
)


@pytest.mark.case("C32")
@pytest.mark.parametrize("value", OUTSIDE)
def test_a_path_out_of_the_folder_is_refused(workspace: Path, value: str):
    """By name, by a link, by a link in between, by an absolute place: refused before any tool starts."""
    with pytest.raises(ArgvFault, match=r"^/p: leads out of the working folder$"):
        check_paths(compile_schema(SCHEMA), {"p": value}, workspace)


@pytest.mark.case("C32")
@pytest.mark.parametrize("value", INSIDE)
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("through", [False, True])
def test_a_path_within_the_folder_is_taken(tmp_path: Path, workspace: Path, value: str, absolute: bool, through: bool):
    """A file within, also a new one, by its absolute place, and where the folder itself is reached through a link."""
    folder = tmp_path / "through" if through else workspace
    check_paths(compile_schema(SCHEMA), {"p": str(folder / value) if absolute else value}, folder)


@pytest.mark.case("C32")
@pytest.mark.spec("4.3.local")
@pytest.mark.parametrize("through", [False, True])
def test_land_local_works_in_the_workspace(tmp_path: Path, workspace: Path, rung: str, through: bool):
    """A command of land local stands in its activation's workspace, reads and writes there, and stays in it."""
    folder = tmp_path / "through" if through else workspace
    world = Wrapped(tmp_path, READ)
    for value, wanted in (("good", "inside\n"), ("within", "inside\n"), (str(folder / "good"), "inside\n")):
        assert stdout(world.run(["{p}"], {"p": value}, schema=SCHEMA, workspace=folder)) == wanted
    for value in ("../app-tools/x", "link", "folder/x", str(workspace.parent / "app-tools" / "x")):
        answer = world.run(["{p}"], {"p": value}, schema=SCHEMA, workspace=folder)
        assert (answer.ok, answer.result, answer.error) == (False, None, REFUSED)
    writer = Wrapped(tmp_path, "import os; open('made', 'w').write('x'); print(os.getcwd())")
    assert stdout(writer.run([], workspace=folder)) == f"{workspace}\n"
    assert (workspace / "made").read_text() == "x"


@pytest.mark.spec("1.5.sandbox")
@pytest.mark.case("C32")
def test_every_other_land_works_in_a_folder_of_its_own(tmp_path: Path, rung: str):
    """Without land local each run has a folder that nobody else sees, and that is gone afterwards."""
    world = Wrapped(tmp_path, "import os; print(os.getcwd(), os.listdir()); open('left', 'w')")
    first, second = (stdout(world.run([])).split(" ", 1) for _ in range(2))
    assert first[0] != second[0]
    assert first[1] == second[1] == "[]\n"
    assert list(world.jails.iterdir()) == []


@pytest.mark.spec("4.3.local")
@pytest.mark.parametrize("kind", ["missing", "file", "dangling"])
def test_a_workspace_that_is_not_there_is_told(tmp_path: Path, kind: str):
    """A workspace that this worker has not refuses the command; nothing is made in its place."""
    place = tmp_path / "ws"
    if kind == "file":
        place.write_text("")
    if kind == "dangling":
        place.symlink_to("nowhere")
    answer = Wrapped(tmp_path, "print(1)").run([], workspace=place)
    assert answer.error == "invalid args: the workspace folder is not there on this worker"
    assert place.is_dir() is False


NESTED: list[tuple[dict[str, Any], Any]] = [
    ({"items": PATH}, ["good", "link"]),
    ({"prefixItems": [{}, PATH]}, [1, "link"]),
    ({"prefixItems": [{}], "items": PATH}, ["link", "link"]),
    ({"contains": PATH}, ["link"]),
    ({"properties": {"q": PATH}}, {"q": "link"}),
    ({"additionalProperties": PATH}, {"other": "link"}),
    ({"patternProperties": {"^f": PATH}}, {"file": "link"}),
    ({"unevaluatedProperties": PATH}, {"file": "link"}),
    ({"allOf": [{"type": "string"}, PATH]}, "link"),
    ({"anyOf": [{"type": "null"}, PATH]}, "link"),
    ({"oneOf": [{"type": "integer"}, PATH]}, "link"),
    ({"if": {"type": "string"}, "then": PATH}, "link"),
    ({"if": {"type": "null"}, "else": PATH}, "link"),
    ({"dependentSchemas": {"a": {"properties": {"q": PATH}}}}, {"a": 1, "q": "link"}),
    ({"$ref": "#/$defs/place"}, "link"),
    ({"$ref": "#/$defs/a~1b"}, "link"),
    ({"$ref": "#anchored"}, "link"),
    ({"items": {"$ref": "#/$defs/tree"}}, [{"next": {"next": {"file": "link"}}}]),
]


@pytest.mark.case("C32")
@pytest.mark.parametrize(("rule", "value"), NESTED)
def test_a_path_is_found_wherever_the_schema_says_it(workspace: Path, rule: dict[str, Any], value: Any):
    """In a list, an object, an alternative, behind a reference: a path is judged, and its place is named."""
    tree = {"properties": {"file": PATH, "next": {"$ref": "#/$defs/tree"}}}
    anchored = {"$anchor": "anchored", **PATH}
    document = {"properties": {"p": rule}, "$defs": {"place": PATH, "a/b": PATH, "tree": tree, "c": anchored}}
    schema = compile_schema(document)
    assert schema.check({"p": value}) is None
    with pytest.raises(ArgvFault, match=r"^/p[/a-z0-9]*: leads out of the working folder$"):
        check_paths(schema, {"p": value}, workspace)


def test_a_schema_that_points_to_itself_ends(workspace: Path):
    """References in a circle are followed once for each value."""
    document = {"allOf": [{"$ref": "#"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}, PATH]}}}
    check_paths(type("Looped", (), {"document": document})(), {"p": "link"}, workspace)


@pytest.mark.parametrize("value", [5, None, ["link"], {"a": "link"}, True])
def test_what_is_no_text_is_no_path(workspace: Path, value: Any):
    """Only text is judged as a path: the schema has taken the value before."""
    check_paths(compile_schema({"properties": {"p": {"format": "path"}}}), {"p": value}, workspace)
