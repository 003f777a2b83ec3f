"""The sub-commands of mqtick-lab, one file each."""
