"""Parses what guests write into fields: text, counts, yes and no, countries, addresses, numbers.

Days are parsed in days.py, adults and children in stay.py. Every function accepts any text: it
returns None if the text cannot be read, and does not guess. The words are in four languages, as
`field_names.plain` writes them.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, NamedTuple

from alpinehub.webhooks.field_names import plain

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


#: ISO 3166-1, two letters.
CODES = frozenset(
    "AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR "
    "BS BT BV BW BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ "
    "EC EE EG EH ER ES ET FI FJ FK FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW "
    "GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY "
    "KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV "
    "MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY "
    "QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG "
    "TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM "
    "ZW".split()
)

#: Names of the countries that guests of the Alps come from, as `field_names.plain` writes them.
_NAMES = """
AD andorra
AE vereinigte arabische emirate, emirati arabi uniti, united arab emirates, emirats arabes unis
AL albanien, albania, albanie
AR argentinien, argentina, argentine
AT osterreich, austria, autriche
AU australien, australia, australie
BA bosnien und herzegowina, bosnia ed erzegovina, bosnia and herzegovina, bosnien, bosnia, bosnie herzegovine, bosnie
BE belgien, belgio, belgium, belgique
BG bulgarien, bulgaria, bulgarie
BR brasilien, brasile, brazil, bresil
BY belarus, bielorussia, bielorussie
CA kanada, canada
CH schweiz, svizzera, switzerland, suisse
CN china, cina, chine
CY zypern, cipro, cyprus, chypre
CZ tschechien, tschechische republik, cechia, repubblica ceca, czechia, czech republic, tchequie, republique tcheque
DE deutschland, germania, germany, allemagne
DK danemark, danimarca, denmark
EE estland, estonia, estonie
ES spanien, spagna, spain, espagne
FI finnland, finlandia, finland, finlande
FR frankreich, francia, france
GB grossbritannien, vereinigtes konigreich, england, gran bretagna, regno unito, inghilterra, united kingdom, great britain, uk, schottland, scozia, scotland, royaume uni, grande bretagne, angleterre, ecosse
GR griechenland, grecia, greece, grece
HR kroatien, croazia, croatia, croatie
HU ungarn, ungheria, hungary, hongrie
IE irland, irlanda, ireland, irlande
IL israel, israele
IN indien, india, inde
IS island, islanda, iceland, islande
IT italien, italia, italy, italie
JP japan, giappone, japon
KR sudkorea, corea del sud, south korea, coree du sud
LI liechtenstein
LT litauen, lituania, lithuania, lituanie
LU luxemburg, lussemburgo, luxembourg
LV lettland, lettonia, latvia, lettonie
MC monaco
MD moldau, moldawien, moldavia, moldova, moldavie
ME montenegro
MK nordmazedonien, macedonia del nord, north macedonia, macedoine du nord
MT malta, malte
MX mexiko, messico, mexico, mexique
NL niederlande, holland, paesi bassi, olanda, netherlands, the netherlands, pays bas, hollande
NO norwegen, norvegia, norway, norvege
NZ neuseeland, nuova zelanda, new zealand, nouvelle zelande
PL polen, polonia, poland, pologne
PT portugal, portogallo
RO rumanien, romania, roumanie
RS serbien, serbia, serbie
RU russland, russia, russie
SA saudi arabien, arabia saudita, saudi arabia, arabie saoudite
SE schweden, svezia, sweden, suede
SG singapur, singapore, singapour
SI slowenien, slovenia, slovenie
SK slowakei, slovacchia, slovakia, slovaquie
SM san marino, saint marin
TR turkei, turchia, turkey, turkiye, turquie
UA ukraine, ucraina
US usa, vereinigte staaten, stati uniti, united states, united states of america, america, etats unis, etats unis d amerique
VA vatikanstadt, citta del vaticano, vatican city, vatican
ZA sudafrika, sudafrica, south africa, afrique du sud
"""  # noqa: E501 - one country a line

NAMES: dict[str, str] = {
    name.strip(): line[:2] for line in _NAMES.strip().splitlines() for name in line[2:].split(",")
}


#: A longer text is not read as a day or a number of people: the rest of it would be lost.
MAX_CHARS = 200
#: Characters that XML 1.0 cannot carry, and surrogates.
ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_WHITE = re.compile(r"[\s\u00a0]+")
EMAIL = re.compile(r'[^\s@<>(),;:"\\\[\]]{1,64}@[^\s@<>(),;:"\\\[\].]+(\.[^\s@<>(),;:"\\\[\].]+)+')
_PHONE = re.compile(r"\+?[0-9 ()./\-]+")
_DIGITS_ONLY = re.compile(r"\+?[0-9](?:[0-9 .\-]*[0-9])?")
_NOT_DIGIT = re.compile(r"[^0-9]")
_CODE_IN_BRACKETS = re.compile(r"^\((\+[0-9]{1,3}|00[0-9]{1,3})\)")
#: Longest text that is read as a telephone number.
MAX_PHONE = 254
#: Longest number of E.164; the 00 before the country code is not counted.
_MAX_DIGITS = 15
#: A shorter number is an area code: 0471 / 123456.
_MIN_WHOLE = 6
_PHONE_LABEL = re.compile(
    r"\A(?:(?:tel|telefon|telefono|telephone|t(?:é|e)l|t(?:é|e)l(?:é|e)phone|phone|fon|mobil|mobile"
    r"|handy|cell|cellulare|natel|portable|whatsapp|call|nummer|numero|nr)\b|[tmph](?=[.:]))"
    r"[.:]*(?:nr|no|n)?[.:°]* *",
    re.IGNORECASE,
)
#: Words after a number: `(Büro)`, `abends`.
_PHONE_NOTE = re.compile(r"(?: +| *\()[^0-9+]*[^\W\d_][^0-9+]*\Z")
#: x12, ext. 12, interno 12, Durchwahl 12, ;ext=12.
_EXTENSION = re.compile(
    r"[ ;,]*(?:#|\b(?:x|ext|extension|int|interno|poste|dw|durchwahl|kl|klappe)\b|x(?=[ 0-9]))"
    r"[.:=]* *[0-9]{1,7} *\Z",
    re.IGNORECASE,
)
_TWO_PHONES = re.compile(r" *(?:[;|\n]|\b(?:oder|or|o|ou|od\.?|bzw\.?|und|and|e|et)\b|&) *", re.I)
#: Within one number, too: 0471 / 123456.
_MAYBE_TWO = re.compile(r" *[/,] *")
#: Only for Italian landlines the 0 is dialled from abroad, too; mobile numbers have none.
_ITALIAN, _ITALIAN_MOBILE = "39", re.compile("393[0-9]{9}")
#: de, de-AT.
LANGUAGE_CODE = re.compile(r"[A-Za-z]{2}([-_][A-Za-z0-9]{2,8})*")
_COUNT = re.compile(r"([0-9]{1,6})(?:[.,]0+)?(?: ?[^\W\d][^0-9]*)?")


def line(text: str) -> str:
    """Text as one line that XML can carry."""
    return _WHITE.sub(" ", ILLEGAL.sub(" ", text)).strip()


def lines(text: str) -> str:
    """Text of several lines that XML can carry."""
    return ILLEGAL.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def read_count(text: str) -> int | None:
    """A number of something: 2, 2.0, `2 Personen`; `keine` is 0."""
    text = line(text)
    if len(text) > MAX_CHARS:
        return None
    if plain(text) in NONE:
        return 0
    match = _COUNT.fullmatch(text)
    return int(match[1]) if match else None


def read_yes(text: str) -> bool | None:
    """Whether a box is ticked; None if the text is neither yes nor no."""
    word = plain(text)
    first = word.split(" ", 1)[0]
    if word in NO or first in ("nein", "no", "non"):
        return False
    return True if word in YES or first in ("ja", "si", "oui", "yes") else None


def read_gender(text: str) -> Literal["", "female", "male"]:
    """The gender; "" if the text says neither."""
    word = plain(text)
    if word in FEMALE:
        return "female"
    return "male" if word in MALE else ""


def read_country(text: str) -> str | None:
    """The ISO 3166 code of a country, by its code or its name."""
    code = line(text).upper()
    return code if code in CODES else NAMES.get(plain(text))


def read_language(text: str) -> str | None:
    """The ISO 639-1 code in lower case, of a code or of a name in LANGUAGES."""
    text = line(text)
    return text[:2].lower() if LANGUAGE_CODE.fullmatch(text) else LANGUAGES.get(plain(text))


def read_email(text: str) -> str | None:
    """An e-mail address as written."""
    text = line(text)
    return text if len(text) <= 254 and EMAIL.fullmatch(text) else None


class Phone(NamedTuple):
    """A telephone number in a text."""

    #: Its digits, with + before a country code.
    number: str
    #: The text contains only this number.
    is_all: bool


def read_phone(text: str) -> Phone | None:
    """The first telephone number in a text. It may be in digits of any script, with a label, a note
    or an extension, or with a second number after it. None: not a number.
    """
    if len(text) > MAX_PHONE:
        return None
    if _DIGITS_ONLY.fullmatch(text):  # no label, note, extension or second number
        number = _dialled(text)
        return None if number is None else Phone(number, True)
    whole = _PHONE_LABEL.sub("", _plain_digits(text).strip())
    first = _EXTENSION.sub("", _PHONE_NOTE.sub("", _first_phone(whole)))
    number = _dialled(first.strip())
    if number is None or (first != whole and _digit_count(first) < _MIN_WHOLE):
        return None
    return Phone(number, is_all=first == whole)


def _plain_digits(text: str) -> str:
    """Digits, dashes and spaces of any script as ASCII; direction marks are removed."""
    return text if text.isascii() else "".join(map(_plain_digit, text))


def _plain_digit(c: str) -> str:
    category = unicodedata.category(c)
    if category == "Nd":
        return str(unicodedata.decimal(c))
    if category in ("Pd", "Zs"):
        return "-" if category == "Pd" else " "
    if c in "\u2212\u2044\u2215":  # a minus sign, and what looks like a slash
        return "-" if c == "\u2212" else "/"
    if category == "Cf":
        return ""
    return c if category == "No" else unicodedata.normalize("NFKC", c)


def _first_phone(text: str) -> str:
    """The text before its second number."""
    both = _TWO_PHONES.search(text)
    first = text[: both.start()] if both else text
    cuts = list(_MAYBE_TWO.finditer(first))
    too_long = len(cuts) == 1 and _digit_count(first) > _MAX_DIGITS + 2
    for number, cut in enumerate(cuts, 1):
        if _digit_count(first[: cut.start()]) < _MIN_WHOLE:
            continue
        part = first[cut.end() : cuts[number].start() if number < len(cuts) else len(first)]
        count = _digit_count(part)
        # A second number begins with its code, or a word. In `12345 / 46` the 46 is left out.
        begins = part.startswith(("+", "0", "(0", "(+")) and count >= _MIN_WHOLE
        if too_long or begins or part[:1].isalpha() or (count <= 3 and number == len(cuts)):
            return first[: cut.start()]
    return first


def _digit_count(text: str) -> int:
    return len(_NOT_DIGIT.sub("", text))


def _dialled(text: str) -> str | None:
    """The digits of one number, with + before a country code; None: not a number."""
    text = _CODE_IN_BRACKETS.sub(r"\1 ", text)
    if not _PHONE.fullmatch(text):
        return None
    international = text.startswith(("+", "00"))
    if international:
        text = text.removeprefix("00")
        bare = _NOT_DIGIT.sub("", text.replace("(0)", ""))
        if not bare.startswith(_ITALIAN) or _ITALIAN_MOBILE.fullmatch(bare):
            text = bare
    digits = _NOT_DIGIT.sub("", text)
    if not 4 <= len(digits) <= _MAX_DIGITS:
        return None
    return f"+{digits}" if international else digits
