"""Style of ``live``, in Textual's CSS."""

CSS = """
Screen { background: $background; }
* { scrollbar-size: 0 1; scrollbar-color: $primary-darken-1; scrollbar-background: $background; }
#title { height: 1; background: $panel; color: $text; padding: 0 1; }
#forbidden, #rights { height: 1; padding: 0 1; color: $text-warning; display: none; }
#tabs { height: 1; margin: 0 0 1 0; }
#filter { height: 1; border: none; padding: 0 1; background: $panel; display: none; }
#filter.open { display: block; }
DataTable { height: 1fr; background: $background; }
DataTable:focus { background-tint: transparent 0%; }
DataTable > .datatable--header { background: $background; color: $text-muted; text-style: bold; }
DataTable > .datatable--cursor { background: $primary 35%; color: $text; text-style: none; }
#list { width: 1fr; background: $background; }
#beside { width: 1fr; border-left: vkey $primary-darken-2; padding: 0 2; display: none; }
#beside.open { display: block; }
#empty { width: 100%; padding: 1 2; color: $text-muted; display: none; }
Details, Confirm { align: center middle; background: $background 60%; }
Details VerticalScroll, Confirm VerticalScroll {
    width: 94%; height: 92%; border: round $primary; background: $surface; padding: 1 2;
    border-title-color: $text; border-title-style: bold;
}
Confirm VerticalScroll { height: auto; max-height: 92%; }
Toast { width: auto; max-width: 96%; }
"""
