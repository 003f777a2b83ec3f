"""What Ansible sends is compiled once, and not by each host at each task anew.

Ansible sends each module as a zip of sources, and Python keeps nothing of what it compiles out of a
zip: a third of a second of processor time a task. On the rig's hosts a .pth file imports this
(hosts.py), on the control machine its name does (playbook.py); the programs of mqtick, which have a
virtual environment, see neither.
"""

import _imp
import marshal
import os
import sys
import zipimport

# The hosts of all rigs share one folder of the control machine.
KEPT = os.environ.get("MQTICK_KEPT_MODULES") or "/var/cache/mqtick-kept-modules"
compile_anew = zipimport._compile_source


def compile_once(path, source):
    """Return the code of a module in a zip, from the folder if any host has compiled it already."""
    name = f"{sys.implementation.cache_tag}-{len(source)}-{_imp.source_hash(0, source).hex()}"
    file = os.path.join(KEPT, name)
    try:
        with open(file, "rb") as kept:
            code = marshal.load(kept)
    except OSError:
        code = compile_anew(path, source)
        new = f"{file}.{os.urandom(8).hex()}"
        try:
            with open(new, "wb") as written:
                marshal.dump(code, written)
            os.replace(new, file)  # for others it is there as a whole, or not yet
        except OSError:
            pass  # the next one compiles it too
        return code
    _imp._fix_co_filename(code, path)  # each zip is called something else
    return code


zipimport._compile_source = compile_once
