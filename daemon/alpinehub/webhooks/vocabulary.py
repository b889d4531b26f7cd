"""Words that guests answer with, in four languages; written as `words.plain` has them."""

from __future__ import annotations

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "januar janner jan january gennaio gen janvier janv",
            "februar feber feb february febbraio fevrier fevr fev",
            "marz maerz mrz march mar marzo mars",
            "april apr aprile avril avr",
            "mai may maggio mag",
            "juni jun june giugno giu juin",
            "juli jul july luglio lug juillet juil",
            "august aug agosto ago aout",
            "september sep sept settembre set septembre",
            "oktober okt october oct ottobre ott octobre",
            "november nov novembre",
            "dezember dez december dec dicembre dic decembre",
        ),
        1,
    )
    for name in names.split()
}
LANGUAGES = {
    name: names.split()[0]
    for names in ("de deutsch german tedesco allemand", "it italienisch italiano italian italien",
                  "en englisch english inglese anglais",
                  "fr franzosisch french francese francais")
    for name in names.split()[1:]
}  # fmt: skip
YES = frozenset("checked on true yes ja si oui 1 x ok okay wahr vero vrai".split())
NO = frozenset("unchecked off false no nein non 0 falsch falso faux".split()) | {""}
NONE = frozenset("0 nein keine kein no nessuno nessun non aucun aucune none nobody niemand".split())
FEMALE = frozenset(
    "female frau weiblich w f donna femmina femminile signora woman mrs ms "
    "femme feminin madame mme".split()
)
MALE = frozenset(
    "male herr mannlich m uomo maschio maschile signor man mr homme masculin monsieur".split()
)
