"""Files of oscilloscopes and logic analysers: recognised by content, read as captures."""
