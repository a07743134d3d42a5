"""Questions from outside of what the demo model knows, in many forms, and how it passes on them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

UNKNOWN: Final = (
    "I don't know that. I am a small demo model that knows macluster.",
    "I don't know that. I am a small demo model that knows macluster: ask me how it splits a model.",
    "Sorry, I don't know that. I am a small demo model that knows macluster and little else.",
    "I don't know that. I know macluster: hops, layers, trust, keys and commands. For more, load a larger model.",
)
_SLOTS: Final[dict[str, str]] = {
    "country": "france|germany|italy|spain|japan|china|india|brazil|canada|egypt|kenya|peru|norway|sweden|finland|"
    "poland|"
    "greece|turkey|mexico|chile|iceland|portugal|ireland|austria|cuba|vietnam|nepal|morocco|australia|russia|ukraine|"
    "switzerland|the usa|thailand|ghana|croatia|hungary|argentina|korea|iran|scotland|denmark|belgium|the netherlands",
    "city": "paris|berlin|rome|london|tokyo|madrid|oslo|vienna|new york|delhi|cairo|lima|munich|hamburg|boston|chicago|"
    "lisbon|dublin|prague|zurich|sydney|moscow|milan|seoul|bangkok|athens|cologne|san francisco|warsaw|stockholm|"
    "venice",
    "thing": "a car|a dog|a cat|a house|bread|coffee|a banana|the moon|the sun|gravity|a whale|photosynthesis|"
    "a volcano|"
    "the ocean|football|chess|a guitar|a piano|a tree|an atom|dna|a black hole|the stock market|inflation|a bicycle|"
    "a plane|a spider|quantum physics|democracy|a virus|blockchain|bitcoin|a star|an elephant|a poem|love|"
    "the meaning of "
    "life|cheese|chocolate|wine|a robot|electricity|a magnet|the brain|evolution|time|a horse|the big bang|a rainbow|"
    "a dinosaur|penguins|snow|climate change|yoga|jazz|opera|a mortgage|insurance|the euro|a tax return|a vaccine|"
    "a migraine|cholesterol|vitamin d|a marathon|tennis|the olympics|a telescope|a comet|mars|the sahara|an earthquake|"
    "a tsunami|philosophy|religion|buddhism|feminism|capitalism|a novel|a sonnet|baroque music|hip hop|knitting|"
    "origami|"
    "a recipe|garlic|olive oil|tea|a cactus|tomatoes|a lawn mower|a washing machine|a fridge|a heat pump|solar panels|"
    "an electric car|a passport|a visa|a wedding|a divorce|a baby|puberty|sleep|dreams|anxiety|happiness|money|gold|"
    "a triangle|pi|a prime number|calculus|an integral|algebra|statistics|the periodic table|oxygen|salt|plastic|glass",
    "tech": "docker|kubernetes|javascript|rust|java|sql|a database|windows|android|an iphone|an ipad|photoshop|excel|"
    "word|"
    "powerpoint|git|github|a browser|chrome|firefox|safari|a printer|a scanner|a router|bluetooth|usb|hdmi|"
    "a hard drive|"
    "a raspberry pi|html|css|react|linux kernel modules|a compiler|regex in perl|vim macros|emacs|a playstation|"
    "an xbox|"
    "a smart tv|alexa|siri|gmail|outlook|whatsapp|instagram|facebook|youtube|netflix|spotify|a vpn provider|tor|"
    "cryptography in general|a 3d printer|a drone|a graphics card|ddr5|a mainboard|an intel processor|cuda|tensorflow|"
    "stable diffusion|midjourney|a chess engine|a spreadsheet|latex|wordpress|a domain name|dns records|email servers",
    "person": "the president|the pope|the king of england|einstein|mozart|napoleon|shakespeare|picasso|the chancellor|"
    "newton|cleopatra|goethe|marie curie|darwin|beethoven|my mother|the mayor|a famous singer|the best football player|"
    "julius caesar|leonardo da vinci|my neighbour|gandhi|mandela|steve jobs|bill gates|elon musk|kafka|plato|buddha|"
    "the queen|my boss|the prime minister|the richest man|harry potter|batman|zeus|santa claus|van gogh|bach|tolstoy",
    "dish": "pizza|pasta|a cake|soup|bread|pancakes|curry|sushi|salad|lasagne|cookies|an omelette|apple pie|rice|"
    "dumplings|"
    "goulash|tacos|a burger|risotto|scrambled eggs|waffles|chili|hummus|paella|a steak|noodles|muffins|a smoothie",
    "text": "an essay|a letter|a song|an email to my boss|a speech|a summary of hamlet|a novel|a haiku|a business plan|"
    "a cover letter|my homework|a game|a web page|an sql query|a limerick|an application|a complaint|a wedding speech|"
    "a sorting algorithm in java|a bash script that renames photos|a regular expression for emails|a react component|"
    "a love letter|a product description|a tweet|a birthday card|a quiz about animals|a lesson plan|a shopping list",
    "language": "french|german|spanish|latin|japanese|italian|russian|chinese|dutch|greek|arabic|hindi|swedish|polish",
    "do": "bake bread|fix my bike|learn the guitar|lose weight|stop smoking|sleep better|save money|buy a house|"
    "rent a flat|"
    "grow tomatoes|paint a wall|repair a tap|change a tyre|train my dog|write a novel|learn to swim|tie a tie|"
    "fold a shirt|"
    "clean an oven|remove a stain|get a visa|book a flight|file my taxes|find a job|ask for a raise|"
    "apologise to a friend|"
    "cook an egg|roast a chicken|make coffee|brew beer|dance salsa|draw a face|play chess|win at poker|"
    "invest in shares|"
    "install windows|root my phone|unlock my iphone|print a document|scan a page|reset my router|convert a pdf|"
    "edit a video|"
    "make a pivot table|crop a photo|format a usb stick|back up my phone|delete my facebook account|block spam calls|"
    "train a neural network|fine-tune a model|write a web server in go|centre a div|sort a list in java|parse html|"
    "deploy a website|set up a mail server|mine bitcoin|overclock my processor|build a pc|solder a wire|"
    "charge a battery|"
    "calm a crying baby|treat a cold|cure a headache|bandage a wound|measure my blood pressure|stay healthy|meditate",
    "noun": "mountain|river|lake|country|city|island|desert|animal|bird|fish|dinosaur|building|bridge|tower|church|"
    "castle|"
    "ship|train|car|plane|rocket|planet|star|galaxy|number|word|book|film|song|painting|painter|singer|actor|athlete|"
    "football club|university|school|company|bank|job|language|religion|war|king|queen|president|holiday|month|flower|"
    "tree|fruit|vegetable|cheese|wine|beer|spice|disease|bone|muscle|organ|metal|gas|chemical element|star sign|insect",
    "most": "highest|largest|smallest|longest|shortest|oldest|youngest|fastest|slowest|deepest|cheapest|most expensive|"
    "heaviest|lightest|strongest|best|worst|most famous|most dangerous|most beautiful|rarest|most popular|first|last",
    "object": "car|bike|fridge|oven|dishwasher|door|window|roof|garden|fence|shoe|jacket|sofa|bed|lamp|tv|radio|piano|"
    "guitar|watch|camera|phone|printer|tablet|headphones|microwave|toilet|shower|sink|heater|boiler|tent|boat|"
    "motorbike|scooter|drill|hammer|knife|carpet|curtain|mirror|chair|table|shelf|pram|lawn|pool|chimney|doorbell",
    "treat": "repair|fix|clean|sell|wash|paint|carry|build|move|replace|measure|open|close|lock|cool|heat|insure|store|"
    "choose|buy|rent|lend|throw away|wrap|draw|polish|charge|switch off|set up|pair|connect|split|load|copy|stop|reset",
    "people": "my mother|my father|my boss|my wife|my husband|my son|my daughter|my neighbour|my teacher|my doctor|"
    "my friend|my dentist|my landlord|my cat|my dog|my girlfriend|my colleague|my grandmother|the police|the postman",
    "body": "head|back|knee|tooth|stomach|throat|ear|eye|foot|hand|neck|shoulder|chest|skin|finger|heart|nose|arm",
    "work": "hamlet|faust|the odyssey|war and peace|don quixote|the bible|star wars|titanic|the matrix|casablanca|"
    "the ninth symphony|the magic flute|yesterday|imagine|guernica|the starry night|dune|emma|ulysses|frozen|jaws",
    "company": "apple|google|microsoft|amazon|tesla|ikea|nike|lego|toyota|siemens|nvidia|intel|samsung|sony|disney|"
    "coca cola|volkswagen|airbus|boeing|netflix|meta|oracle|ibm|dell|lenovo|starbucks|nestle|shell|visa|adidas",
    "fact": "is the sky blue|do cats purr|does ice float|is the sea salty|do leaves turn red|do we dream|do we yawn|"
    "is gold so expensive|did rome fall|did the war begin|do birds sing|do people lie|is the earth round|is blood red|"
    "are there seasons|do stars twinkle|does bread rise|do onions make me cry|is my back hurting|is my phone so slow|"
    "is my printer offline|are flights so expensive|is inflation so high|do men go bald|is water wet|"
    "is chess so popular",
    "case": "i mix bleach and vinegar|i swallow a chewing gum|the sun explodes|i fall into a black hole|"
    "i don't pay taxes|"
    "my plane is late|i lose my passport|my car breaks down|my dog eats chocolate|it rains tomorrow|the dollar falls|"
    "i stop eating sugar|i never sleep|i burn my hand|my phone falls into water|i forget my bank pin|i miss my train|"
    "somebody steals my wallet|my child has a fever|the moon disappears|i eat too much salt|prices go up",
    # words of macluster, and where they mean something else
    "own": "node|worker|stage|head|hop|lane|row|plan|roster|layer|token|key|pair|session|trust|memory|copy|ring|link|"
    "split|code|screen|pane|picker|prompt|model|cable|port|peer|mirror|draft|branch|fork|timeline|window|cache|limit|"
    "context|sample|temperature|seed|beam|grammar|batch|speed|budget|log|theme|license|weight|balance|bench|network|"
    "witness|guard|command|shortcut|answer|question|message|machine|home|share|seal|recovery|queue|map|snapshot",
    "field": "biology|music|chess|law|football|cooking|physics|medicine|architecture|the theatre|geology|banking|"
    "poetry|botany|painting|sailing|knitting|photography|farming|astronomy|marketing|school|psychology|the bible|"
    "baseball|a kitchen|a hospital|a church|a garden|a museum|a circus|a court|the army|a bakery|a film|a novel|a zoo|"
    "excel|photoshop|blender|minecraft|windows|android|instagram|whatsapp|a bank|a railway|a car|a plane|a piano|"
    "a supermarket|carpentry|dancing|fishing|golf|tennis|politics|china|france|the middle ages|ancient rome",
}  # fmt: skip
_WORDS: Final = {name: tuple(words.split("|")) for name, words in _SLOTS.items()}
_TEMPLATES: Final = (
    "what is the capital of {country}?", "capital of {country}", "how many people live in {country}?",
    "how many people live in {city}?", "what language do they speak in {country}?", "who rules {country}?",
    "tell me about {country}", "tell me about {city}", "where is {city}?", "where is {country}?",
    "what is the weather in {city}?", "will it rain in {city} tomorrow?", "weather {city}", "how far is it to {city}?",
    "what time is it in {city}?", "flights to {city}", "a good restaurant in {city}?", "best hotel in {city}",
    "how do i get to {city}?", "how high is the tower in {city}?", "is it safe to travel to {country}?",
    "how warm is it in {city} in may?", "which sights are there in {city}?", "do i need a visa for {country}?",
    "what is the national dish of {country}?", "when is the best time to visit {country}?", "news from {country}",
    "who won the election in {country}?", "what is the flag of {country}?", "is {city} bigger than {city}?",
    "what is the history of {country}?", "who is the president of {country}?", "what is the currency of {country}?",
    "is {country} in europe?", "which is the largest city in {country}?", "what is the longest river in {country}?",
    "how do people greet each other in {country}?", "what is the population of {city}?", "how expensive is {city}?",
    "what is {thing}?", "explain {thing}", "tell me about {thing}", "how does {thing} work?", "{thing}", "{thing}?",
    "what do you think about {thing}?", "who invented {thing}?", "where does {thing} come from?",
    "why is {thing} important?", "how old is {thing}?", "how big is {thing}?", "do you like {thing}?", "what's {thing}",
    "define {thing}", "how much does {thing} cost?", "is {thing} better than {thing}?",
    "what is the colour of {thing}?",
    "what is the difference between {thing} and {thing}?", "give me facts about {thing}", "what is {thing} good for?",
    "is {thing} dangerous?", "can i buy {thing}?", "how heavy is {thing}?", "what does {thing} mean to people?",
    "summarise {thing} in one sentence", "when was {thing} discovered?", "how many kinds of {thing} are there?",
    "can you describe {thing}?", "i want to know more about {thing}", "what do i need for {thing}?",
    "why do people like {thing}?", "is {thing} healthy?", "what are the parts of {thing}?",
    "a short text about {thing}",
    "what is {tech}?", "how do i install {tech}?", "explain {tech}", "do you know {tech}?", "how does {tech} work?",
    "is {tech} any good?", "which is better, {tech} or {tech}?", "how much does {tech} cost?", "who made {tech}?",
    "i have a problem with {tech}", "{tech} does not work", "how do i learn {tech}?", "can you help me with {tech}?",
    "what is the newest version of {tech}?", "where can i download {tech}?", "how do i uninstall {tech}?",
    "which shortcut copies a line in {tech}?", "what is {tech} used for?", "error message from {tech}",
    "{tech} tutorial",
    "how fast is {tech}?", "is {tech} open source?", "how do i update {tech}?", "should i buy {tech}?",
    "who is {person}?", "who was {person}?", "when was {person} born?", "where does {person} live?",
    "how old is {person}?", "what did {person} do?", "tell me about {person}", "call {person}",
    "is {person} still alive?",
    "who is {person} married to?", "what is {person} famous for?", "how tall is {person}?", "when did {person} die?",
    "what does {person} earn?", "what would {person} say about {thing}?", "do you know {person}?",
    "how do i cook {dish}?", "a recipe for {dish}", "give me a recipe for {dish}", "how long does {dish} take?",
    "what goes into {dish}?", "order {dish}", "how many calories has {dish}?", "how can i make {dish} at home?",
    "what goes well with {dish}?", "is {dish} vegetarian?", "my {dish} burned, what now?", "best {dish} in {city}",
    "write {text}", "write me {text}", "can you write {text}?", "please write {text} about {thing}",
    "help me with {text}",
    "summarise {text}", "could you compose {text} for me?", "i need {text}", "make {text} shorter", "draft {text}",
    "improve {text}", "write {text} in the style of {person}", "correct {text}", "how do i begin {text}?",
    "translate this to {language}", "how do you say hello in {language}?", "translate dog into {language}",
    "how do i learn {language}?", "what is thank you in {language}?", "is {language} hard to learn?",
    "how do people greet each other in {language}?", "good morning in {language}?", "a {language} proverb",
    "how do i {do}?", "how can i {do}?", "i want to {do}", "what do i need to {do}?", "teach me to {do}", "how to {do}",
    "help me to {do}", "what is the best way to {do}?", "can you {do}?", "is it hard to {do}?", "tips to {do}?",
    "how long does it take to {do}?", "should i {do}?", "which app helps me to {do}?",
    "i can't {do}, what should i do?",
    "steps to {do}", "where can i learn to {do}?", "my friend wants to {do}", "why is it so hard to {do}?",
    "why {fact}?", "tell me why {fact}", "explain why {fact}", "i wonder why {fact}", "do you know why {fact}?",
    "what happens if {case}?", "what if {case}?", "{case}, what now?", "what should i do when {case}?", "help, {case}",
    "what is the {most} {noun}?", "what's the {most} {noun} in {country}?", "which {noun} is the {most}?",
    "the {most} {noun} in the world?", "name the {most} {noun}", "who has the {most} {noun}?",
    "what was the {most} {noun}?",
    "how many {noun}s are there in {country}?", "where is the {most} {noun}?", "tell me the {most} {noun} of {city}",
    "how old is the {most} {noun}?", "my favourite {noun}?", "recommend a {noun}", "which {noun} do you like?",
    "who discovered the {most} {noun}?", "is there a {noun} without a name?", "how long does a {noun} last?",
    "how do i {treat} my {object}?", "how can i {treat} a {object}?", "how to {treat} a {object}",
    "who can {treat} my {object}?",
    "what does it cost to {treat} a {object}?", "i want to {treat} my {object}", "can you {treat} my {object}?",
    "my {object} is broken", "my {object} makes a noise", "why is my {object} so loud?", "which {object} should i buy?",
    "is a used {object} a good idea?", "how heavy is a {object}?", "my {object} does not start, what now?",
    "where do i find a cheap {object}?", "how long does a {object} last?", "what happens if my {object} breaks?",
    "who invented the {object}?", "a {object} for {people}?", "how many parts has a {object}?",
    "which key fits my {object}?",
    "my {body} hurts", "what helps against pain in the {body}?", "why does my {body} itch?",
    "is it bad if my {body} is red?",
    "how many bones are in the {body}?", "which doctor looks at a {body}?", "exercises for the {body}",
    "who wrote {work}?", "what is {work} about?", "when was {work} made?", "who plays in {work}?", "quote from {work}",
    "how does {work} end?", "is {work} worth it?", "how long is {work}?", "explain {work}", "lyrics of {work}",
    "who founded {company}?", "stock price of {company}", "who runs {company}?", "where is {company} based?",
    "how many people work at {company}?", "should i work for {company}?", "customer service of {company}",
    "is {company} better than {company}?", "what does {company} make?", "when did {company} begin?",
    "what should i give {people} for a birthday?", "how do i apologise to {people}?", "{people} is angry with me",
    "how old is {people}?", "what do i say to {people}?", "{people} is ill, what can i do?", "write to {people}",
    "where is {people} now?", "does {people} love me?", "how do i tell {people} the truth?",
    "remind {people} to call me",
    "what is a {own} in {field}?", "what does {own} mean in {field}?", "which {own} is the {most} in {field}?",
    "how do i find the {most} {own} in {field}?", "who needs a {own} in {field}?", "explain the {own} in {field}",
    "how many {own}s are there in {field}?", "is there a {own} in {field}?", "how do i use a {own} in {field}?",
    "how do i change the {own} of my {object}?", "where is the {own} of a {object}?", "{own} for my {object}?",
    "what is the {own} of {people}?", "the {own} of my {object} is broken", "does my {object} have a {own}?",
    "which {own} does {company} use?", "what is the {own} of {city}?", "can i {treat} the {own} of my {object}?",
    "how do i {treat} a {own} in {field}?", "why is the {own} so important in {field}?", "{own} {object}",
    "what happens to the {own} if {case}?", "do {people} and i share a {own}?", "a {own} for {people}?",
    "spell {thing}", "what rhymes with {noun}?", "synonym of {noun}", "plural of {noun}", "opposite of {most}",
    "is it legal to {do}?", "how much does it cost to {do}?", "what is the risk if i {do}?", "a book about how to {do}",
    "how many minutes are in a day?", "why are there 60 seconds in a minute?", "why do we have two eyes?",
    "how many layers has an onion?", "how many layers has the atmosphere?", "which layer of skin is the thickest?",
    "how do i split a bill?", "how do i split wood?", "how do i split an atom?", "who split the party?",
    "which key opens my front door?", "i lost my house key", "what key is this song in?", "which key is c sharp minor?",
    "how do i pair my headphones?", "how do i pair wine with cheese?", "how do i pair socks?",
    "bluetooth pairing of my car",
    "who is the head of state?", "who is the head of the church?", "my head hurts", "head over heels, meaning?",
    "what is the plan for tonight?", "what is the best diet plan?", "is there a plan b?", "plan my holiday",
    "how many rings has saturn?", "which ring finger is it?", "how much is a gold ring?", "who lost the ring?",
    "what are hops in beer?", "how high can a frog hop?", "how wide is a swimming lane?", "bus lane rules?",
    "what does a factory worker earn?", "how do i become a social worker?", "how do i trust people again?",
    "what is a trust fund?", "memory loss in old age?", "how do i train my memory?", "how do i quit my job?",
    "how do i load a truck?", "how do i copy a dvd?", "how do i save money?", "how do i stop a nosebleed?",
    "how much should i bench press?", "is my bank safe?", "who guards the palace?", "how do i seal a window?",
    "how do i recover from a cold?", "what is a row boat?", "how many rows has the theatre?",
    "who is on stage tonight?",
    "what is stage fright?", "what temperature is the sea?", "what temperature should an oven have?",
    "is it hot outside?",
    "how do i plant a seed?", "which seeds do birds eat?", "context of the french revolution?",
    "what is a token of love?",
    "casino tokens?", "how do i sample music?", "sampling in statistics?", "how do i forward a letter?",
    "reverse parking, how?", "single or married?", "private school or public school?", "who owns a node in anatomy?",
    "network marketing?", "how do i network at parties?", "cable tv prices?", "how do i join two cables?",
    "thunder and lightning, why?", "when is the next thunderstorm?", "which port is the largest in europe?",
    "port wine?", "screen time for children?", "sunscreen for babies?", "window cleaning?", "frame for a picture?",
    "how big is a picture frame?", "logs for the fireplace?", "log cabin prices?", "what is a mirror made of?",
    "spare tyre?", "spare parts for my car?", "balance on one leg?", "how is my bank balance?", "wire transfer fees?",
    "barbed wire?", "stomach ulcer?", "timeline of world war two?", "doctor near me", "i need a doctor",
    "verify my age?", "demo of a song?", "demo against war?", "studio apartment prices?", "a mini skirt?",
    "mini cooper?",
    "who is the admin of wikipedia?", "recovery after surgery?", "how many words has the dictionary?",
    "session with a therapist?",
    "how long is a parliament session?", "chess pieces?", "model railway?", "fashion model?",
    "which model of car is best?",
    "draft beer?", "draft of a contract?", "shortcut to the station?", "commands for my dog?",
    "how do i command an army?",
    "password of my email?", "i forgot my wifi password", "how do i change my bank pin?", "six digit lottery number?",
    "who won the world cup?", "who won the game last night?", "what is the news today?", "what day is it?",
    "what time is it?", "what year is it?", "what is the price of gold?", "which stock should i buy?",
    "when did the war end?", "what is the speed of light?", "how many planets are there?", "who painted the mona lisa?",
    "what is the tallest mountain?", "i have a headache, what should i do?", "what is the best film?",
    "which book should i read?", "what should i eat today?", "how do i fix my car?", "can you play music?",
    "open my email", "set a timer", "turn on the light", "what is the square root of 7?", "solve this equation",
    "what is 12 times 34?", "what is 144 divided by 12?", "what is my name?", "where do i live?", "how old am i?",
    "what is the exchange rate today?", "who will win the election?", "is there life on mars?", "does god exist?",
    "what is the answer to everything?", "how do i become rich?", "who directed that film?", "sing a song",
    "what are the lottery numbers?", "how much does a new macbook cost?", "which mac should i buy?",
    "when is the next iphone?",
    "what is the best laptop for students?", "how much is a mac studio?", "where can i buy a used mac mini?",
    "what does a thunderbolt cable cost?", "how do i reset my apple id?", "how do i take a screenshot?",
    "how do i update macos?", "my macbook battery is dead", "my keyboard is broken, what now?",
    "how do i clean my screen?",
    "which shortcut takes a screenshot?", "how do i empty the trash?", "how do i change my wallpaper?",
    "is my internet provider good?", "how do i get faster internet?", "what is a good wifi router?",
    "which ai is the best?", "is chatgpt better?", "what is the newest language model?", "who owns openai?",
    "how do i write a prompt for an image?", "draw a picture", "make a logo for me", "show me a photo of {thing}",
    "remind me tomorrow", "what is on tv tonight?", "book a table for two", "how is the traffic to {city}?",
    "what is the meaning of the name anna?", "what is my horoscope?", "is it going to snow?", "when is easter?",
    "how many days until christmas?", "when does school start?", "who was the first man on the moon?",
    "how many legs has a spider?", "what sound does a fox make?", "how deep is the ocean?",
    "what is the biggest animal?",
    "how do magnets work?", "what is the boiling point of water?", "how many bones are in the body?",
    "is coffee healthy?",
    "how much water should i drink?", "what helps against a cold?", "which pill helps against pain?", "am i ill?",
    "write a function that reverses a string", "fix this bug in my code", "how do i read a file in java?",
    "what is a pointer in c?", "why does my loop never end in javascript?", "explain recursion", "what is a hash map?",
    "convert 5 miles to kilometres", "how many ounces are in a pound?", "what is 20 percent of 350?",
    "roman numeral for 14",
)  # fmt: skip


_WHOLE: Final = tuple(filter(None, Path(__file__).with_name("outside.txt").read_text("utf-8").splitlines()))


def outside_question(rng: Random) -> str:
    """A whole one that somebody wrote, or one of the templates, filled."""
    if rng.random() < 0.6:
        return rng.choice(_WHOLE)
    text = rng.choice(_TEMPLATES)
    for name, words in _WORDS.items():
        while f"{{{name}}}" in text:
            text = text.replace(f"{{{name}}}", rng.choice(words), 1)
    return text
