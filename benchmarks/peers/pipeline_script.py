"""Tars to TFRecord with a minimal Pipeline; its imports always count, as it is tar2tf itself.

python pipeline_script.py OUT TAR...
"""

from __future__ import annotations

import json
import sys

from tar2tf_cli.pipeline import Pipeline

out, *tars = sys.argv[1:]
done = Pipeline().from_tar(tars).sample_to_tf_example().to_tf_record(out, overwrite=True).do()
print(json.dumps({"records": done.records}))
