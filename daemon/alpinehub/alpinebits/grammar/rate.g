# Rate plans: pushed, and fetched as base rates.

OTA_HotelRatePlanNotifRQ
  like root
  UniqueID?
    @Type! {16}
    @ID! any
    @Instance! {CompleteSet}
  like rate_plans

OTA_HotelRatePlanNotifRS
  like push_answer

OTA_HotelRatePlanRQ
  like root
  RatePlans
    RatePlan
      either+
        DateRange
          @Start date
          @End date
      or
        RatePlanCandidates
          RatePlanCandidate+
            @RatePlanCode text [-2022]
            @RatePlanCode text64 [2024-]
            @RatePlanID text [-2022]
            @RatePlanID text64 [2024-]
      or
        HotelRef
          like hotel

OTA_HotelRatePlanRS
  like root
  either
    like errors
  or
    Success open
    like warnings [2022-]
    like rate_plans

fragment rate_plans
  RatePlans
    like hotel
    RatePlan+
      @Start date
      @End date
      @RatePlanNotifType {Overlay|New|Remove} [-2022]
      @RatePlanNotifType {Overlay|New|Full|Remove} [2024-]
      like plan_currency
      @RatePlanCode text [-2022]
      @RatePlanCode text64 [2024-]
      @RatePlanType {12}
      @RatePlanCategory text [-2022]
      @RatePlanCategory text64 [2024-]
      @RatePlanID text [-2022]
      @RatePlanID text64 [2024-]
      @RatePlanQualifier boolean
      BookingRules?
        BookingRule+
          like booking_rule
      Rates?
        Rate+
          like rate
      Supplements?
        Supplement+
          like supplement
      Offers?
        Offer{1,3}
          like offer
      Description{0,5}
        like description

fragment plan_currency
  @CurrencyCode {EUR} [-2018]
  @CurrencyCode currency [2020-]

fragment week
  @Mon boolean
  @Tue boolean
  @Weds boolean
  @Thur boolean
  @Fri boolean
  @Sat boolean
  @Sun boolean

fragment arrival_and_departure
  DOW_Restrictions?
    ArrivalDaysOfWeek?
      like week
    DepartureDaysOfWeek?
      like week

fragment booking_rule
  @CodeContext {ROOMTYPE}
  @Code text8
  @Start date
  @End date
  LengthsOfStay?
    LengthOfStay+
      @Time! amount
      @TimeUnit! {Day}
      @MinMaxMessageType! {SetMinLOS|SetForwardMinStay|SetMaxLOS|SetForwardMaxStay}
  like arrival_and_departure
  RestrictionStatus?
    @Restriction {Master}
    @Status {Open|Close}

fragment rate
  @MinGuestApplicable positive
  @Start date
  @End date
  @RateTimeUnit {Day}
  @UnitMultiplier positive
  like week
  @Duration nights
  @InvTypeCode text8
  BaseByGuestAmts?
    BaseByGuestAmt+
      @NumberOfGuests positive
      @AmountAfterTax price
      like plan_currency
      @Type {7|25}
      @AgeQualifyingCode positive
  AdditionalGuestAmounts?
    AdditionalGuestAmount+
      @Amount amount
      @AgeQualifyingCode positive
      @MinAge positive
      @MaxAge positive
  RateDescription?
    @Name! {included services}
    ListItem+ : text
      @ListItem! natural
      @Language! language
  MealsIncluded?
    @Breakfast boolean
    @Lunch boolean
    @Dinner boolean
    @MealPlanCodes meal_plan
    @MealPlanIndicator {1|true}

fragment inventory_code
  @InvCode! text [-2022]
  @InvCode! text16 [2024-]

fragment supplement
  @AddToBasicRateIndicator {1|true}
  @ChargeTypeCode {1|12|18|19|20|21|24}
  @Amount amount
  @InvType! {EXTRA|ALPINEBITSEXTRA}
  like inventory_code
  @MandatoryIndicator boolean
  @Start date
  @End date
  PrerequisiteInventory?
    like inventory_code
    @InvType! {ALPINEBITSDOW|ROOMTYPE}
  Description{0,5}
    like description

fragment description
  @Name! {title|intro|description|gallery|codelist}
  either+
    ListItem : text
  or
    Image : web
  or
    Text : text
      @TextFormat! {PlainText|HTML}
      @Language language
  or
    URL : web

fragment offer
  OfferRules?
    OfferRule?
      @MinAdvancedBookingOffset days
      @MaxAdvancedBookingOffset days
      LengthsOfStay?
        LengthOfStay+
          @Time! amount
          @TimeUnit! {Day}
          @MinMaxMessageType! {SetMinLOS|SetMaxLOS|}
      like arrival_and_departure
      Occupancy+
        @AgeQualifyingCode! {8|10}
        @MinAge positive
        @MaxAge positive
        @MinOccupancy natural
        @MaxOccupancy positive
  Discount?
    @Percent! {100}
    @NightsRequired positive
    @NightsDiscounted positive
    @DiscountPattern zeros_then_ones
  Guests?
    Guest
      @AgeQualifyingCode! positive
      @MaxAge! positive
      @MinCount! natural
      @FirstQualifyingPosition! {1}
      @LastQualifyingPosition! positive
