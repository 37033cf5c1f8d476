"""What the SDK, the server and the workers agree on: ids, names, codes and layouts.

Standard library only and free of side effects, so that every part of Penstock may import it. Changing a value here
changes stored data: the golden vectors in `tests/unit/sdk/test_contract_*.py` hold them in place.
"""
