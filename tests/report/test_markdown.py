from wattention.core.quantities import measured
from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.report.renderers.markdown import markdown_text

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
