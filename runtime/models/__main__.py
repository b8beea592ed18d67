"""`python -m runtime.models`."""

import sys

from runtime.models.cli import main

sys.exit(main())
