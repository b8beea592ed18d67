"""`python -m runtime.shim VERB ...`: the same as the packed file, for looking around by hand."""

from .cli import main

raise SystemExit(main())
