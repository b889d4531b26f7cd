"""Countries as guests write them: the ISO 3166 codes, and names in German, Italian and English."""

from __future__ import annotations

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

#: Of those that guests of the Alps come from: names as `words.plain` writes them.
_NAMES = """
AD andorra
AE vereinigte arabische emirate, emirati arabi uniti, united arab emirates
AL albanien, albania
AR argentinien, argentina
AT osterreich, austria
AU australien, australia
BA bosnien und herzegowina, bosnia ed erzegovina, bosnia and herzegovina, bosnien, bosnia
BE belgien, belgio, belgium
BG bulgarien, bulgaria
BR brasilien, brasile, brazil
BY belarus, bielorussia
CA kanada, canada
CH schweiz, svizzera, switzerland, suisse
CN china, cina
CY zypern, cipro, cyprus
CZ tschechien, tschechische republik, cechia, repubblica ceca, czechia, czech republic
DE deutschland, germania, germany
DK danemark, danimarca, denmark
EE estland, estonia
ES spanien, spagna, spain
FI finnland, finlandia, finland
FR frankreich, francia, france
GB grossbritannien, vereinigtes konigreich, england, gran bretagna, regno unito, inghilterra, united kingdom, great britain, uk, schottland, scozia, scotland
GR griechenland, grecia, greece
HR kroatien, croazia, croatia
HU ungarn, ungheria, hungary
IE irland, irlanda, ireland
IL israel, israele
IN indien, india
IS island, islanda, iceland
IT italien, italia, italy
JP japan, giappone
KR sudkorea, corea del sud, south korea
LI liechtenstein
LT litauen, lituania, lithuania
LU luxemburg, lussemburgo, luxembourg
LV lettland, lettonia, latvia
MC monaco
MD moldau, moldawien, moldavia, moldova
ME montenegro
MK nordmazedonien, macedonia del nord, north macedonia
MT malta
MX mexiko, messico, mexico
NL niederlande, holland, paesi bassi, olanda, netherlands, the netherlands
NO norwegen, norvegia, norway
NZ neuseeland, nuova zelanda, new zealand
PL polen, polonia, poland
PT portugal, portogallo
RO rumanien, romania
RS serbien, serbia
RU russland, russia
SA saudi arabien, arabia saudita, saudi arabia
SE schweden, svezia, sweden
SG singapur, singapore
SI slowenien, slovenia
SK slowakei, slovacchia, slovakia
SM san marino
TR turkei, turchia, turkey, turkiye
UA ukraine, ucraina
US usa, vereinigte staaten, stati uniti, united states, united states of america, america
VA vatikanstadt, citta del vaticano, vatican city
ZA sudafrika, sudafrica, south africa
"""  # noqa: E501 - one country a line

NAMES: dict[str, str] = {
    name.strip(): line[:2] for line in _NAMES.strip().splitlines() for name in line[2:].split(",")
}
