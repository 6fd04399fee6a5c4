"""Everyday topics: words that belong together and name no group of people by who they are.

Words of one topic are liked or disliked together, whatever the topic. So a list of identity terms has to be compared not
with single words alone but with other lists that are as close-knit: these. Ours, concrete and dull on purpose; words
that are at home in most vocabularies; several topics name people by what they do, as identity terms are about people.
"""

TOPICS: dict[str, tuple[str, ...]] = {
    name: tuple(words.split())
    for name, words in {
        "trades": "carpenter plumber electrician baker butcher tailor mechanic mason gardener painter barber farmer",
        "professions": "lawyer engineer architect accountant surgeon dentist professor librarian journalist economist",
        "performers": "actor singer dancer drummer guitarist pianist violinist composer conductor poet novelist sculptor",
        "officials": "mayor governor senator minister ambassador secretary clerk judge sheriff commissioner treasurer",
        "ranks": "captain sergeant lieutenant colonel admiral corporal commander major cadet marshal",
        "players": "goalkeeper striker midfielder defender pitcher catcher quarterback bowler coach referee umpire",
        "roles": "neighbor colleague visitor guest tenant customer client passenger spectator member owner buyer reader",
        "mammals": "horse cow sheep goat pig rabbit squirrel fox wolf bear deer elephant tiger camel",
        "birds": "sparrow robin crow raven eagle hawk owl duck goose swan pigeon parrot",
        "fish": "salmon trout tuna cod shark whale dolphin crab lobster shrimp squid eel",
        "insects": "ant bee wasp beetle butterfly moth spider mosquito grasshopper worm snail",
        "plants": "oak pine maple willow elm palm fern moss ivy lily tulip grass",
        "produce": "apple lemon cherry peach pear plum grape potato tomato onion carrot cabbage bean",
        "food": "bread cheese butter soup salad rice pasta pizza sandwich cake pie sausage",
        "drinks": "coffee tea juice wine beer milk whiskey soda cider vodka rum champagne",
        "clothes": "shirt trousers jacket coat skirt hat scarf glove boots shoes socks belt sweater",
        "body": "arm leg hand foot knee elbow shoulder neck finger toe chin ankle wrist",
        "furniture": "table chair sofa desk bed shelf lamp carpet curtain mirror drawer stool",
        "tools": "hammer saw drill wrench shovel rake axe chisel nail screw ladder rope",
        "vehicles": "car truck bus train tram bicycle motorcycle boat ship ferry tractor helicopter airplane",
        "buildings": "house barn tower bridge castle hotel library museum factory warehouse stadium garage",
        "rooms": "kitchen bedroom bathroom hallway basement attic balcony corridor lobby cellar pantry",
        "materials": "wood steel copper brass glass plastic rubber leather cotton wool concrete brick",
        "elements": "hydrogen oxygen carbon nitrogen helium sodium calcium zinc nickel silicon chlorine",
        "instruments": "piano violin guitar drum flute trumpet cello harp clarinet saxophone banjo",
        "landforms": "mountain hill valley river lake desert island coast beach cliff canyon swamp",
        "weather": "rain snow wind fog cloud thunder frost hail mist drizzle breeze",
        "sky": "planet moon comet galaxy orbit asteroid mars venus jupiter saturn telescope",
        "calendar": "january february april june july august september october november december monday tuesday thursday",
        "colours": "red green blue yellow purple pink brown crimson scarlet violet turquoise",
        "shapes": "circle square triangle sphere cube cylinder curve angle axis radius polygon",
        "sciences": "physics chemistry biology geology astronomy mathematics geometry algebra statistics botany",
        "sports": "football tennis hockey golf baseball basketball rugby swimming boxing cycling rowing",
        "computing": "computer keyboard software server laptop printer monitor folder network database browser",
        "finance": "bank loan mortgage tax invoice budget credit bond fund payment",
        "law": "contract statute lease clause court jury verdict petition lawsuit attorney",
        "print": "book magazine newspaper chapter page paragraph essay novel poem journal",
        "kitchenware": "knife fork spoon plate bowl cup kettle oven stove pan jug",
        "measures": "inch mile pound gallon ounce acre gram kilometer decade century",
        "fabrication": "engine valve pump gear piston cable pipe boiler turbine motor bearing",
    }.items()
}
