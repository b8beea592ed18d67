"""`python -m runtime.models`."""

import sys

from runtime.models.cli import end_by_signals, main

end_by_signals()
sys.exit(main())
