"""For command-line programs: lists and records, JSON, new files, progress, times, exit codes.

`cordata` and `alpinehub` use it; an application may use it for its commands:

    from cordata.terminal import run_command, show_page

On a terminal, output has colours and fits its width; elsewhere it is plain, stable text. `--json`
is for programs: one document, or a line for each document where several follow. rich is imported
when it is needed.
"""

from cordata.terminal.file import new_file as new_file
from cordata.terminal.options import ROW_NUMBER as ROW_NUMBER
from cordata.terminal.options import config_option as config_option
from cordata.terminal.options import limit_option as limit_option
from cordata.terminal.options import traceback_option as traceback_option
from cordata.terminal.output import as_record as as_record
from cordata.terminal.output import printable as printable
from cordata.terminal.output import show_json as show_json
from cordata.terminal.output import show_page as show_page
from cordata.terminal.output import show_record as show_record
from cordata.terminal.output import show_records as show_records
from cordata.terminal.output import show_table as show_table
from cordata.terminal.program import Command as Command
from cordata.terminal.program import Group as Group
from cordata.terminal.program import LazyGroup as LazyGroup
from cordata.terminal.program import add_options as add_options
from cordata.terminal.program import report as report
from cordata.terminal.program import report_bug as report_bug
from cordata.terminal.program import run_command as run_command
from cordata.terminal.progress import Counter as Counter
from cordata.terminal.progress import Interrupted as Interrupted
from cordata.terminal.progress import ProgressBar as ProgressBar
from cordata.terminal.time import Moment as Moment
from cordata.terminal.time import duration as duration
from cordata.terminal.time import moment as moment
from cordata.terminal.time import span as span
