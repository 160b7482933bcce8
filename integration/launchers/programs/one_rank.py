"""What `accelerate launch` and others start that want a Python script: the command of a rank.

    one_rank.py COMMAND...
"""

import os
import sys

os.execvp(sys.argv[1], sys.argv[1:])
