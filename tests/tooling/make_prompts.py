# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the prompts that ship with the role sglang_benchmark: make_prompts.py FILE

All texts are our own. Kinds and lengths take turns, so that the first N prompts are a mixture for every N. The same
file comes out each time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Iterator

EACH = 25  # of a kind

# ---- what the prompts are about

FUNCTIONS = [
    "merges two sorted lists of numbers",
    "finds the longest word in a sentence",
    "counts how often each line occurs in a file",
    "parses a date such as 2024-03-09 without a library",
    "removes duplicates from a list and keeps the order",
    "checks whether brackets in a text are balanced",
    "converts a number to Roman numerals",
    "computes the moving average of a stream",
    "reads a CSV file with quoted fields",
    "finds the shortest path in a grid with walls",
    "splits a long text into lines of at most 80 characters",
    "retries an HTTP request with growing pauses",
    "implements a cache that forgets the oldest entry",
    "validates an IPv4 address",
    "rotates a square matrix in place",
    "groups words that are anagrams of each other",
    "evaluates an expression such as 3 + 4 * (2 - 1)",
    "computes the edit distance of two words",
    "walks a directory tree and sums file sizes by extension",
    "generates all permutations of a string",
    "merges overlapping intervals",
    "encodes and decodes run-length encoding",
    "schedules tasks by priority and deadline",
    "detects a cycle in a linked list",
    "formats a duration in seconds as hours and minutes",
]
LANGUAGES = ["Python", "Go", "JavaScript", "Rust", "C", "Java", "Bash", "TypeScript", "SQL and Python", "Kotlin"]
SUBJECTS = [
    "a lighthouse keeper who collects letters",
    "the first morning of a bakery in a small town",
    "a train that is late by exactly one year",
    "two neighbours who share a garden wall",
    "the last library on a drifting island",
    "a clockmaker who mends other people's memories",
    "a village that votes on the weather",
    "a cartographer who has never left home",
    "the repair of an old radio on a winter night",
    "a ferry captain and a stowaway cat",
    "an orchestra that loses its conductor",
    "a student who finds a door in the archive",
    "a mountain hut during a storm",
    "a robot that learns to bake bread",
    "an apprentice who paints shop signs",
    "the night shift in a greenhouse",
    "a beekeeper who moves to the city",
    "a market stall that sells only questions",
    "a postman in a valley without roads",
    "a family that restores a windmill",
    "an engineer who listens to bridges",
    "the opening of a museum of lost things",
    "a swimmer who crosses a cold lake",
    "a translator who invents a word",
    "a gardener on a space station",
]
THINGS = [
    "how vaccines train the immune system",
    "why the sky is blue and sunsets are red",
    "how a compiler turns text into machine code",
    "what inflation is and who notices it first",
    "how tides follow the moon",
    "why bread rises",
    "how a search engine ranks pages",
    "what a semiconductor is",
    "how bees decide where to live",
    "why ships float although steel sinks",
    "how public key cryptography works",
    "what makes a language extinct",
    "how noise-cancelling headphones work",
    "why leaves change colour",
    "how a jury reaches a verdict",
    "what a black hole does to light",
    "how earthquakes are measured",
    "why antibiotics stop working",
    "how a database keeps two copies alike",
    "what photosynthesis needs",
    "how a violin makes its sound",
    "why some metals rust and others do not",
    "how weather forecasts are made",
    "what a neural network learns from examples",
    "how ancient roads were built",
]
PLANS = [
    "a week of dinners for four people without meat",
    "a move to another city within a month",
    "a school trip for thirty children to a science museum",
    "a vegetable garden on a balcony",
    "a first marathon in twenty weeks",
    "a small conference of eighty people",
    "the launch of a neighbourhood newspaper",
    "a bicycle tour along a river in ten days",
    "the migration of a company's mail to another provider",
    "a family budget after a new baby",
    "the repair of a leaking roof",
    "a reading circle about the sea",
    "a backup strategy for a photographer",
    "a course that teaches grandparents to use a phone safely",
    "a winter market in a village square",
    "the first hundred days of a new team leader",
    "an interview with a candidate for a data engineer",
    "a kitchen that wastes less food",
    "a power cut of two days at home",
    "a surprise party in a small flat",
    "a website for a music school",
    "a weekend without screens",
    "the sale of a used car",
    "a collection of oral history in a town",
    "an emergency drill in an office",
]
ROLES = [
    ("a customer whose parcel is late", "a support agent"),
    ("a patient with back pain", "a physiotherapist"),
    ("a tenant with a broken heater", "a landlord"),
    ("a beginner", "a chess teacher"),
    ("a tourist without a map", "a bus driver"),
    ("a parent", "a teacher after a difficult exam"),
    ("a journalist", "an astronaut back from orbit"),
    ("a small farmer", "a bank clerk"),
    ("a guest with an allergy", "a cook"),
    ("an intern", "a database administrator during an outage"),
    ("a teenager", "a librarian"),
    ("a buyer", "a seller of a second-hand bicycle"),
    ("a mayor", "a citizen who wants a playground"),
    ("a detective", "a witness who remembers only sounds"),
    ("a pilot", "a control tower in fog"),
    ("a pharmacist", "a customer with two prescriptions"),
    ("a product manager", "an engineer who says no"),
    ("a traveller", "a border officer who is bored"),
    ("a grandmother", "a grandchild who fixes her phone"),
    ("a landlady", "a pianist who practises at night"),
    ("a coach", "a runner who wants to give up"),
    ("a museum guide", "a child who asks why"),
    ("a plumber", "a customer who has already tried it himself"),
    ("a recruiter", "an applicant with a gap in her career"),
    ("a captain", "a passenger who fears the sea"),
]
PLACES = ["Harbour Street", "the north valley", "Mill Lane", "the old port", "the eastern district"]
SENTENCES = [
    "The council of {place} met on a {day} to decide about the water works, which had failed {n} times since spring.",
    "An engineer reported that the pumps were sound, and that the trouble lay in a valve from the year {year}.",
    "Three families had been without water for {n} hours, and a baker had to close his shop.",
    "The budget left {amount} for repairs, about half of what a new line would cost.",
    "A member asked whether the neighbouring town would share its reservoir until the autumn.",
    "The neighbours agreed in principle, but wanted a contract for at least {n} years.",
    "It was argued that a leak of this size loses as much water in a night as a school uses in a month.",
    "The chair reminded everybody that the last inspection had been put off twice.",
    "After a break the meeting heard a surveyor, who had measured the pressure at {n} places.",
    "Her figures showed that the pressure falls by a third between the tower and the last house.",
    "A shopkeeper offered to lend a generator, provided that somebody else would guard it.",
    "In the end the valve was to be replaced at once, and the line before the winter.",
    "The decision was carried with {n} votes against two, and the minutes were signed at midnight.",
    "A report to the residents is due by the end of the month.",
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]


# ---- one kind each


def code() -> Iterator[str]:
    forms = [
        "Write a function in {language} that {what}. Explain its running time and give three tests.",
        "I have to write a program in {language} that {what}. Show a simple version first, then a faster one.",
        "Review this idea: a small {language} module that {what}. Write it, with error handling and comments that say "
        "why.",
        "Translate the following requirement into {language}: the function {what}. Do not use external packages.",
        "Write unit tests in {language} for a function that {what}. Cover empty input, very large input and wrong "
        "types.",
    ]
    for place, what in enumerate(FUNCTIONS):
        yield forms[place % len(forms)].format(language=LANGUAGES[place % len(LANGUAGES)], what=what)


def prose() -> Iterator[str]:
    forms = [
        "Write a short story about {subject}.",
        "Write the opening of a novel about {subject}. Use long sentences and no dialogue.",
        "Tell the story of {subject} as a letter to a friend, in the past tense.",
        "Write a poem of five stanzas about {subject}, without rhymes.",
        "Write a newspaper report about {subject}, with quotes of two people who disagree.",
    ]
    for place, subject in enumerate(SUBJECTS):
        yield forms[place % len(forms)].format(subject=subject)


def explanations() -> Iterator[str]:
    forms = [
        "Explain {thing} to a ten-year-old.",
        "Explain {thing} in detail to somebody who has studied engineering. Begin with what is usually misunderstood.",
        "What would you say if somebody asked you at dinner {thing}?",
        "Write an encyclopedia article that explains {thing}, with sections and a short history.",
        "Compare two common explanations of {thing} and say where each of them breaks down.",
    ]
    for place, thing in enumerate(THINGS):
        yield forms[place % len(forms)].format(thing=thing)


def maths() -> Iterator[str]:
    for n in range(1, EACH + 1):
        kinds = [
            "A tank holds {a} litres. One pipe fills it in {b} hours, another empties it in {c} hours. Both are open. "
            "How long does it take until the tank is full? Show each step.",
            "Prove that the sum of the first n odd numbers is n squared. Then check it for n = {b}, and say why the "
            "proof needs no luck.",
            "A train leaves at 8:{b:02d} with {a} km/h, a second one {c} minutes later with {d} km/h. When and where "
            "does the second one pass the first?",
            "Solve x^2 - {b}x + {c} = 0 in two ways, and explain what the discriminant tells before anything is "
            "computed.",
            "{a} people share {d} seats on {b} boats. In how many ways can the boats be filled if no boat stays empty? "
            "Start with a smaller case.",
        ]
        yield kinds[n % len(kinds)].format(a=60 + 7 * n, b=3 + n % 9, c=2 + n % 7 + 4, d=90 + 5 * n)


def plans() -> Iterator[str]:
    forms = [
        "Make a checklist for {plan}.",
        "Plan {plan}. Give a table with step, who does it, and how long it takes.",
        "List twenty things that go wrong with {plan}, ordered by how likely they are, with a remedy for each.",
        "I have little money and two free evenings. Help me with {plan}: ask me five questions first, then give a plan "
        "for the most likely answers.",
        "Write an e-mail that asks ten friends for help with {plan}, and a shorter one for those who did not answer.",
    ]
    for place, plan in enumerate(PLANS):
        yield forms[place % len(forms)].format(plan=plan)


def dialogues() -> Iterator[str]:
    forms = [
        "Write a dialogue between {one} and {other}. Each says at least eight lines.",
        "Play {other}. I am {one}. Begin the conversation, and write both sides until we find a solution.",
        "Write a scene for the stage with {one} and {other}. Neither says what they really want.",
    ]
    for place, (one, other) in enumerate(ROLES):
        yield forms[place % len(forms)].format(one=one, other=other)


def passage(number: int, length: int) -> str:
    """A report of so many sentences."""
    values = {
        "place": PLACES[number % len(PLACES)],
        "day": DAYS[number % len(DAYS)],
        "n": 3 + number % 11,
        "year": 1950 + 3 * number % 60,
        "amount": "{} euros".format(4000 + 250 * number),
    }
    return " ".join(SENTENCES[(number + place) % len(SENTENCES)].format(**values) for place in range(length))


def documents() -> Iterator[str]:
    tasks = [
        "Summarise the following report in three sentences.",
        "Which decisions were taken in the following report, and what is still open? Answer as a list.",
        "Rewrite the following report for a local newspaper, in the present tense.",
        "Translate the following report into German, sentence by sentence, and keep the numbers.",
        "Continue the following report with what happens in the next meeting.",
    ]
    for number in range(EACH):
        # From some hundred to a few thousand characters.
        length = (6, 10, 14, 20, 28)[number % 5]
        yield "{}\n\n{}".format(tasks[(number + number // 5) % len(tasks)], passage(number, length))


def data() -> Iterator[str]:
    names = ["Adler", "Brandt", "Costa", "Dumas", "Eriksen", "Fischer", "Gallo", "Horvat", "Iversen", "Jansen"]
    tasks = [
        "Turn this table into JSON with one object for each row, and add the sum of all amounts.",
        "Write SQL that creates this table, inserts its rows and answers: who ordered more than the average?",
        "Which rows of this table look like mistakes? Explain each, then give a corrected table.",
        "Describe this table in prose for somebody who cannot see it.",
        "Write a Python program that reads this table from standard input and prints a bar chart of characters.",
    ]
    for number in range(EACH):
        rows = ["name,city,orders,amount"]
        for place in range(4 + number % 9):
            name = names[(number + 3 * place) % len(names)]
            city = PLACES[(number + place) % len(PLACES)].title()
            rows.append(
                "{},{},{},{}.50".format(name, city, 1 + (number * place) % 17, 20 + 13 * ((number + place) % 23))
            )
        yield "{}\n\n{}".format(tasks[number % len(tasks)], "\n".join(rows))


KINDS = (code, prose, explanations, maths, plans, dialogues, documents, data)


def prompts() -> list[str]:
    """All prompts, one of each kind at a time."""
    columns = [list(kind()) for kind in KINDS]
    return [column[row] for row in range(EACH) for column in columns]


def main() -> None:
    lines = [json.dumps({"prompt": text}) + "\n" for text in prompts()]
    Path(sys.argv[1]).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
