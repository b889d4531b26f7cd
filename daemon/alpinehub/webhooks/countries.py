"""Countries as guests write them: the ISO 3166 codes, and names in four languages."""

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
