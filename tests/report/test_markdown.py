import io

from wattention.core.quantities import measured
from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.report.renderers.html.page import html_page
from wattention.report.renderers.markdown import markdown_text
from wattention.report.renderers.terminal import print_section

TABLE = Table(
    columns=(
        Column(key="name", heading="mechanism", help="", numeric=False),
        Column(key="time", heading="time\nper step", help=""),
    ),
    rows=((Cell(content="<script>|*"), Cell(content=measured(0.5, "s", "clock"), best=True)),),
)


def test_a_document_becomes_markdown_and_text_from_users_is_escaped():
    document = Document(title="t", answer="a_b", sections=(Section(title="s", table=TABLE, notes=("n",)),))
    assert markdown_text(document) == (
        "## t\n\na\\_b\n\n### s\n\n"
        "| mechanism | time per step |\n| --- | ---: |\n| \\<script\\>\\|\\* | **500 ms** |\n\n- n\n"
    )


def test_warnings_stand_before_the_notes_in_every_format_that_has_notes():
    section = Section(title="s", warnings=("<w>",), notes=("n",))
    document = Document(title="t", answer="a", sections=(section,))
    assert markdown_text(document).endswith("- **\\<w\\>**\n- n\n")
    assert "<li><strong>&lt;w&gt;</strong></li><li>n</li>" in html_page(document)
    out = io.StringIO()
    print_section(section, file=out, width=80)
    assert out.getvalue() == "s\n<w>\nn\n"


def test_a_table_of_prose_wraps_and_any_other_is_split():
    words = tuple(Column(key=key, heading=key, help="", numeric=False, prose=True) for key in "ab")
    row = (Cell(content="one two"), Cell(content="x" * 30))
    out = io.StringIO()
    print_section(Section(title="s", table=Table(columns=words, rows=(row,))), file=out, width=20)
    lines = out.getvalue().splitlines()
    assert lines[1].split() == ["a", "b"]
    assert "".join(line.split()[-1] for line in lines[2:]).endswith("x" * 5)
    assert all(len(line) <= 20 for line in lines)
    assert "".join(lines).count("x") == 30
