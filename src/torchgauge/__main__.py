"""`python -m torchgauge` is the command line."""

from torchgauge.cli.main import main

raise SystemExit(main())
