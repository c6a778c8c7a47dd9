"""The texts behind the real models' golden data."""

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "The three laws of thermodynamics say that",
    "Dear Sir or Madam,\n\nI am writing to",
    "1, 2, 3, 5, 8, 13,",
    "Water boils at",
    "#include <stdio.h>\n\nint main(void) {\n",
    "In 1969, the first humans",
    "Die Hauptstadt von Deutschland ist",
    "SELECT name, age FROM users WHERE",
    "To make a good cup of tea, first",
    "Question: What is photosynthesis?\nAnswer:",
    "The quick brown fox",
    "| Country | Capital |\n|---|---|\n| Italy | Rome |\n| Spain |",
    "A prime number is",
    "import numpy as np\n\n# Create a matrix of zeros\n",
    "La r\u00e9volution fran\u00e7aise a commenc\u00e9 en",
    "Roses are red,\nviolets are blue,",
    "<html>\n<head>\n<title>",
]

LONG_TEXT = """\
A lighthouse keeper's day begins before the sun. Margaret climbed the hundred and twelve steps with a lamp in one hand \
and a bucket of oil in the other, as her father had done, and his father before him. The glass at the top was salted \
over by the night's wind, so she washed it pane by pane, looking out at a sea that was the colour of slate. Two fishing \
boats were already beyond the bar, their sails small and brown, and a steamer was coming up from the south.

She kept a book of everything that passed. On the third of March there had been eleven ships; on the fourth, none at \
all, because of the fog. In fog the bell had to be rung once every thirty seconds, and there was a machine for that, with \
a weight on a chain, which had to be wound up every four hours. It had failed twice in nine years. Both times she had \
rung the bell by hand until the fog lifted, the second time for nineteen hours.

The engineers who came in the spring to measure the tower said that the light would soon need no keeper. They showed her \
a drawing: a motor would turn the lens, a clock would start the motor, and a wire would bring the current from the town. \
"And who will wash the glass?" she asked. They looked at each other, and one of them wrote something in a notebook.

What is a good measure of a light? The engineers counted candles: the old lamp gave about four thousand of them, and the \
new one would give six hundred thousand. Height matters as well. From a tower of 40 metres the horizon is roughly 22.6 \
kilometres away, since the distance is close to 3.57 times the square root of the height; from the deck of a ship at 9 \
metres it is another 10.7, so the two can see each other at a little more than 33 kilometres, if the air is clear.

They also left her a small program that a student had written for the new clock, which she did not understand, but kept:

    def minutes_of_light(day, latitude):
        declination = -23.44 * cos(radians(360 / 365 * (day + 10)))
        x = -tan(radians(latitude)) * tan(radians(declination))
        return 1440 - 2 * 4 * degrees(acos(max(-1, min(1, x))))

    for day in range(1, 366):
        print(day, round(minutes_of_light(day, 54.6)))

In the first winter of the motor there was a storm that lasted three days. The wire to the town came down on the first \
night, and the lens stood still. Margaret was sixty-one then. She carried the old lamp up the hundred and twelve steps, \
filled it, trimmed the wick, lit it, and turned the lens by hand, one revolution every twenty seconds, until the morning. \
The steamer from the south passed at a quarter past four. Her captain wrote in his own book that the light had been dim \
but regular, and that he had set his course by it as he always did. He did not know that anything had been wrong.

Years later the captain came to see the tower. He was old, and had to rest at every landing. At the top he looked at the \
lens for a long time, put his palm against the cool brass, and asked how fast a person could turn it. "As fast as is \
needed," she said, "and no faster. If it turns too fast, you would have taken it for another light, and you would have \
been on the rocks." He nodded. Below them the tide was coming in over the bar, and the first boats were turning home.
"""
