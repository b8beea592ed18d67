"""Where a deployment's router listens: `pdctl status NAME --json | python3 endpoint.py`."""

import json
import sys

(deployment,) = json.load(sys.stdin)["deployments"]
endpoint = deployment["endpoint"]
host = f"[{endpoint['host']}]" if ":" in endpoint["host"] else endpoint["host"]
print(f"http://{host}:{endpoint['port']}")
